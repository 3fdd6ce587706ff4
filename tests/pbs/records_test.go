package pbs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// attribute of a job's record, "" where it isn't there.
func attribute(record, name string) string {
	m := regexp.MustCompile(`(?m)^    ` + regexp.QuoteMeta(name) + ` = (.*)$`).FindStringSubmatch(record)
	if m == nil {
		return ""
	}
	return m[1]
}

func exitStatus(record string) string { return attribute(record, "Exit_status") }

// PBS's own record says the same of a job as we do, in state and exit code.
func TestRecordsAgree(t *testing.T) {
	for name, c := range map[string]struct {
		script   string
		walltime string // "": 5m
		before   string // warning before it
		cancel   bool

		phase, reason  string // ours
		code           int    // of the workload's result; -1: none is promised
		exit           int    // of submit --wait
		status, detail string // theirs: Exit_status and substate
		comment        string
	}{
		"success": {script: "exit 0", phase: "COMPLETED", status: "0", detail: "92", comment: "and finished"},
		"exit 3 on one rank": {script: "test $RANK != 2 || exit 3; exec sleep 600",
			phase: "FAILED", reason: "COMMAND_FAILED", code: 3, exit: 3, status: "3", detail: "93", comment: "and failed"},
		"exit 3 on all ranks": {script: "exit 3",
			phase: "FAILED", reason: "COMMAND_FAILED", code: 3, exit: 3, status: "3", detail: "93", comment: "and failed"},
		"signal": {script: "test $RANK != 1 || kill -USR1 $$; exec sleep 600",
			phase: "FAILED", reason: "COMMAND_FAILED", code: 138, exit: 138, status: "138", detail: "93", comment: "and failed"},
		"cancel": {script: "trap 'sleep 2; exit 0' TERM; echo up; sleep 600 & wait; exit 0", cancel: true,
			phase: "CANCELLED", reason: "USER_CANCELLED", code: -1, exit: 20, status: "271", detail: "91", comment: "and terminated"},
		"cancel of what ends at once": {script: "echo up; exec sleep 600", cancel: true,
			phase: "CANCELLED", reason: "USER_CANCELLED", code: -1, exit: 20, status: "271", detail: "91", comment: "and terminated"},
		"timeout": {script: "exec sleep 600", walltime: "8s", before: "0s",
			phase: "FAILED", reason: "TIME_LIMIT_EXCEEDED", code: -1, exit: -1, status: "-29", detail: "93", comment: "and exceeded resource walltime"},
		"timeout that was warned of": {script: "exec sleep 600", walltime: "60s", before: "40s",
			phase: "FAILED", reason: "TIME_LIMIT_EXCEEDED", code: 143, exit: 143, status: "143", detail: "93", comment: "and failed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCluster(t), "")
			text := "nodes = 4\nwalltime = \"" + or(c.walltime, "5m") + "\"\ncommand = [\"sh\", \"-c\", '''" + c.script + "''']\n[signal]\ngrace = \"3s\"\n"
			if c.before != "" {
				text += "before_walltime = \"" + c.before + "\"\n"
			}
			s := w.start("openai4s", "submit", "--embedded", "--wait", w.write("job.toml", text))
			id := s.id()
			if c.cancel {
				upOnAll(w, s, 4)
				e := w.run("openai4s", "cancel", "--embedded", id)
				require.Zero(t, e.code, e.stderr)
			}
			e := s.wait()
			if c.exit >= 0 {
				assert.Equal(t, c.exit, e.code, e.stderr)
			} else {
				assert.NotZero(t, e.code, e.stderr)
			}
			st := w.status(id).Workload
			assert.Equal(t, c.phase, st.Phase, st.Message)
			assert.Equal(t, c.reason, st.Reason, st.Message)
			if c.code >= 0 {
				require.NotNil(t, st.Result)
				assert.Equal(t, c.code, st.Result.ExitCode)
			}
			record := w.gone(st.Job.ID)
			assert.Equal(t, c.status, exitStatus(record))
			assert.Equal(t, c.detail, attribute(record, "substate"))
			assert.Contains(t, attribute(record, "comment"), c.comment)
		})
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// upOnAll waits until n ranks have said that they are up.
func upOnAll(w *world, s *started, n int) (id string) {
	w.t.Helper()
	id = s.id()
	w.until("the ranks don't run", func() bool {
		text, _ := os.ReadFile(w.status(id).Workload.Output)
		return strings.Count(string(text), "up") >= n
	})
	return id
}

// What the README promises.
func TestExamples(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		also  string // appended to the job file
	}{
		"allreduce": {lines: []string{"rank 0 of 4: the sums of 100000 elements are right", "rank 3 of 4: the sums of 100000 elements are right"}},
		"wordcount": {lines: []string{"counted by 4 ranks and checked against one"}, also: "\n[env]\nWORDCOUNT_FOLDER = \"input\"\n"},
		"hello":     {lines: []string{"hello from rank 3 of 4, node 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCluster(t), "")
			from := filepath.Join("../../examples", name)
			entries, err := os.ReadDir(from)
			require.NoError(t, err)
			for _, e := range entries {
				w.write(filepath.Join(name, e.Name()), w.read(filepath.Join(from, e.Name())))
			}
			w.write(name+"/input/text.txt", strings.Repeat("some words of a text\n", 1000))
			w.write(name+"/input/more.txt", strings.Repeat("and others\n", 1000))
			job := w.write(name+"/job.toml", w.read(filepath.Join(from, "job.toml"))+c.also)
			e := w.run("openai4s", "submit", "--embedded", "--wait", "--nodes", "4", job)
			require.Zero(t, e.code, e.stderr)
			st := w.status(workloadID.FindString(e.stderr)).Workload
			assert.Equal(t, "COMPLETED", st.Phase)
			output := w.read(st.Output)
			for _, line := range c.lines {
				assert.Contains(t, output, line)
			}
		})
	}
}

// A profile is a name of the site's, and what it means to PBS is what PBS gets.
func TestProfile(t *testing.T) {
	w := newWorld(t, newCluster(t), "")
	w.write("site.toml", w.read(w.site)+`
[profiles.quick]
max_nodes = 1
walltime = "2m"
place = "free"
directives = ["-p 7"]
prologue = ["FROM_PROLOGUE=yes; export FROM_PROLOGUE"]
`+quickQueue(w))
	job := w.write("job.toml", `setup = ["export FROM_SETUP=$FROM_PROLOGUE-too"]
command = ["sh", "-c", 'echo "prologue $FROM_PROLOGUE, setup $FROM_SETUP"']
`)
	e := w.run("openai4s", "submit", "--embedded", "--wait", "--profile", "quick", job)
	require.Zero(t, e.code, e.stderr)
	st := w.status(workloadID.FindString(e.stderr)).Workload
	assert.Equal(t, "prologue yes, setup yes-too\n", w.read(st.Output))
	record := w.gone(st.Job.ID)
	assert.Equal(t, "00:02:00", attribute(record, "Resource_List.walltime"))
	assert.Equal(t, "free", attribute(record, "Resource_List.place"))
	assert.Contains(t, attribute(record, "Submit_arguments"), "-p 7")

	e = w.run("openai4s", "submit", "--embedded", "--profile", "huge", job)
	assert.Equal(t, 81, e.code)
	for _, word := range []string{"huge", "default", "quick"} {
		assert.Contains(t, e.stderr, word, "the ones there are")
	}
}

// quickQueue is what a site's profile says of queue and account, for another profile.
func quickQueue(w *world) string {
	var kept []string
	for line := range strings.Lines(w.pbs.profile()) {
		if name, _, _ := strings.Cut(line, " "); name == "queue" || name == "account" || name == "project" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
