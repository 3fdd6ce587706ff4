package slurm

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

func TestJobID(t *testing.T) {
	for out, want := range map[string]scheduler.JobID{
		"12\n":                                   {ID: "12"},
		"12":                                     {ID: "12"},
		"12\r\n":                                 {ID: "12"},
		"12;c3\n":                                {ID: "12", Cluster: "c3"},
		"hello\n12;lab-2.x\nbye\n":               {ID: "12", Cluster: "lab-2.x"},
		"Submitted batch job 12\n":               {ID: "12"},
		"Submitted batch job 12 on cluster c3\n": {ID: "12", Cluster: "c3"},
	} {
		got, err := jobID([]byte(out))
		require.NoError(t, err, out)
		assert.Equal(t, want, got, out)
	}
	for _, out := range []string{"", "\n", "12 \n", " 12\n", "12;\n", "12;c3;d4\n", "12\n13\n", "12\n12\n", "job 12\n", "12a\n", "-12\n", "12.5\n", "12;a b\n",
		"12;-x\n", "Submitted batch job 12.\n", "submitted batch job 12\n", "12345678901\n", "\x0012\n", "12[]\n", "１２\n"} {
		got, err := jobID([]byte(out))
		assert.Error(t, err, "%q", out)
		assert.True(t, got.IsZero(), "%q", out)
	}
}

func FuzzJobID(f *testing.F) {
	for _, s := range []string{"12\n", "12;c3\n", "Submitted batch job 12 on cluster c3\n", "Welcome 3\n12\n", "1\n2\n", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, out string) {
		id, err := jobID([]byte(out))
		if err != nil {
			assert.True(t, id.IsZero())
			return
		}
		assert.True(t, wellFormed(id), "%q", out)
		assert.Contains(t, out, id.ID)
	})
}

func TestRows(t *testing.T) {
	const d = "|x|"
	assert.Empty(t, rows(nil, d, 2))
	assert.Empty(t, rows([]byte("a banner\n"), d, 2))
	assert.Equal(t, [][]string{{"1", "a"}, {"2", "b\nc|y|"}}, rows([]byte("hello 7\n1|x|a|x|\nhello\n2|x|b\nc|y||x|\nbye\n"), d, 2))
	assert.Equal(t, [][]string{{"1", "a"}}, rows([]byte("1|x|a|x|\n2|x|"), d, 2), "a row that was cut is none")
}

func TestDelimiters(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		d := newDelimiter()
		assert.False(t, seen[d])
		seen[d] = true
		assert.NotContains(t, "0123456789.", d[:1], "squeue would take it for a width")
		assert.NotContains(t, d, ",")
	}
}

func FuzzRecords(f *testing.F) {
	f.Add("12|xx|12|xx|RUNNING|xx|None|xx|0|xx|0|xx|n[1-2]|xx|2026-11-30T21:21:46|xx|N/A|xx|N/A|xx|alice|xx|1001|xx|two\nlines|xx|\n")
	f.Add("banner\n|xx||xx|")
	f.Add("12|xx|12|xx|CANCELLED by 7|xx|ReqNodeNotAvail, x|xx|9|xx|3:0|xx|n[|xx|||xx||xx||xx||xx||xx||xx|")
	f.Fuzz(func(t *testing.T, out string) {
		for _, queued := range []bool{true, false} {
			fields := queueFields
			if !queued {
				fields = recordFields
			}
			for _, r := range records([]byte(out), recordedDelimiter, fields, queued) {
				o := r.observation()
				assert.True(t, isNumber(r.id))
				for _, text := range []string{o.Verbatim, o.Message, o.Name, o.User, o.FailedNode} {
					printable(t, text)
				}
				if o.ExitCode != nil {
					assert.True(t, o.Phase.Terminal())
				}
			}
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add("Configuration data\nClusterName = lab\nKillWait = 30 sec\nPrivateData = none\n")
	f.Add("=\n==\nx = y = z\n")
	f.Fuzz(func(t *testing.T, out string) {
		facts := factsOf(parseConfig([]byte(out)))
		assert.GreaterOrEqual(t, facts.KillDelay, facts.KillDelay*0)
		printable(t, facts.Cluster)
		printable(t, facts.Version)
	})
}

func FuzzPartitions(f *testing.F) {
	f.Add("PartitionName=main Default=YES MaxTime=1-00:00:00 State=UP TotalNodes=4\n", "NodeName=n1 CPUTot=4 Gres=gpu:a100:2(S:0,1) RealMemory=4096 Partitions=main\n")
	f.Fuzz(func(t *testing.T, parts, nodes string) {
		for _, p := range partitions([]byte(parts), []byte(nodes)) {
			printable(t, p.Name)
			assert.GreaterOrEqual(t, p.MemoryPerNode, int64(0))
			assert.GreaterOrEqual(t, p.GPUsPerNode, 0)
			assert.GreaterOrEqual(t, p.MaxTime, p.MaxTime*0)
		}
	})
}

func FuzzVerdict(f *testing.F) {
	f.Add("sbatch: error: Batch job submission failed: Invalid partition name specified\n", 1)
	f.Add("Socket timed out on send/recv operation", 1)
	f.Add("", 255)
	f.Fuzz(func(t *testing.T, stderr string, code int) {
		r, _ := judge(result{code: code, stderr: []byte(stderr)})
		assert.NotEqual(t, scheduler.Created, r.Outcome)
		if strings.Contains(stderr, "Socket timed out on send/recv") {
			assert.Equal(t, scheduler.Unknown, r.Outcome, "a lost answer outweighs all else")
		}
		printable(t, strings.ReplaceAll(r.Text, "\n", ""))
	})
}

func TestUnknownWordsAreNoRefusal(t *testing.T) {
	for _, stderr := range []string{"", "sbatch: error: something new\n", "sbatch: error: Batch job submission failed: Something new\n",
		"sbatch: error: Batch job submission failed: Unspecified error\n", "ssh: connect to host login1 port 22: Connection refused\n"} {
		for _, code := range []int{1, 2, 127, 137, 255} {
			if code == 255 && stderr == "sbatch: error: something new\n" {
				continue // sbatch's own code while it reads its options
			}
			r, _ := judge(result{code: code, stderr: []byte(stderr)})
			assert.Equal(t, scheduler.Unknown, r.Outcome, "%d %q", code, stderr)
			assert.Equal(t, scheduler.BackendSubmissionUnknown, r.Reason)
		}
	}
}

func TestShown(t *testing.T) {
	assert.Equal(t, "a?[31mb\nc d", shown([]byte("  a\x1b[31mb\r\nc\td\n")))
	assert.Equal(t, "?é?", shown([]byte("\xffé\u202e")))
	long := shown([]byte(strings.Repeat("é", 100_000) + "end"))
	assert.LessOrEqual(t, len(long), maxShown)
	assert.True(t, strings.HasPrefix(long, "… ") && strings.HasSuffix(long, "end"))
	assert.Equal(t, "a b", word("a\nb"))
}

func printable(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) || len(s) > 2*maxShown {
		t.Fatalf("not fit to be shown: %.60q", s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			t.Fatalf("not fit to be shown: %.60q", s)
		}
	}
}
