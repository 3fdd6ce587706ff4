package agent

import (
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if v, ok := strings.CutPrefix(p, name+"="); ok {
				return v
			}
		}
		return ""
	}
}

func TestParse(t *testing.T) {
	base := []string{"OPENAI4S_BUNDLE=/run/wl/gang-0.bundle", "OPENAI4S_EPOCH=0"}
	for _, tt := range []struct {
		name string
		args []string
		env  []string
		rank int
		says string // "": no error
	}{
		{"the flag", []string{"--rank", "3"}, []string{"SLURM_PROCID=1"}, 3, ""},
		{"slurm's variable first", nil, []string{"OPENAI4S_RANK=5", "PMI_RANK=4", "OMPI_COMM_WORLD_RANK=3", "PMIX_RANK=2", "SLURM_PROCID=1"}, 1, ""},
		{"pmix", nil, []string{"OPENAI4S_RANK=5", "PMI_RANK=4", "OMPI_COMM_WORLD_RANK=3", "PMIX_RANK=2"}, 2, ""},
		{"open mpi", nil, []string{"OPENAI4S_RANK=5", "PMI_RANK=4", "OMPI_COMM_WORLD_RANK=3"}, 3, ""},
		{"pmi", nil, []string{"OPENAI4S_RANK=5", "PMI_RANK=4"}, 4, ""},
		{"our own", nil, []string{"OPENAI4S_RANK=5"}, 5, ""},
		{"the named one wins", nil, []string{"SLURM_PROCID=1", "MY_RANK=6", "OPENAI4S_WORKER_RANK_ENV=MY_RANK"}, 6, ""},
		{"the named one is missing", nil, []string{"SLURM_PROCID=1", "OPENAI4S_WORKER_RANK_ENV=MY_RANK"}, 0, "names MY_RANK, which is not set"},
		{"no rank at all", nil, nil, 0, "no rank is known"},
		{"a rank that is no number", nil, []string{"PMI_RANK=one"}, 0, `"one" of PMI_RANK`},
		{"a negative rank", []string{"--rank", "-1"}, nil, 0, `"-1" of --rank`},
		{"a relative bundle", []string{"--rank", "0", "--bundle", "gang-0.bundle"}, nil, 0, "not absolute"},
		{"no bundle", []string{"--rank", "0", "--bundle", ""}, nil, 0, "no bundle is named"},
		{"no epoch", []string{"--rank", "0", "--epoch", ""}, nil, 0, "epoch"},
		{"a negative epoch", []string{"--rank", "0", "--epoch", "-1"}, nil, 0, "epoch"},
		{"a deadline that is no time", []string{"--rank", "0", "--deadline", "soon"}, nil, 0, "deadline"},
		{"a stray argument", []string{"--rank", "0", "now"}, nil, 0, `unknown argument "now"`},
		{"an unknown flag", []string{"--quick"}, nil, 0, "quick"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := Parse(tt.args, env(append(tt.env, base...)...), io.Discard)
			if tt.says != "" {
				require.ErrorIs(t, err, ErrUsage)
				assert.ErrorContains(t, err, tt.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.rank, o.Rank)
			assert.Equal(t, "/run/wl", o.dir())
		})
	}
}

func TestParseTakesThePlace(t *testing.T) {
	o, err := Parse(nil, env("OPENAI4S_BUNDLE=/b", "OPENAI4S_EPOCH=2", "OPENAI4S_RANK=1", "OPENAI4S_JOB_ID=77", "OPENAI4S_DEADLINE=1764536000", "SLURMD_NODENAME=n7", "HOSTNAME=wrong"), io.Discard)
	require.NoError(t, err)
	assert.Equal(t, int64(2), o.Epoch)
	assert.Equal(t, "77", o.Job)
	assert.Equal(t, "n7", o.Host)
	assert.Equal(t, time.Unix(1764536000, 0), o.Deadline)
	assert.Equal(t, -1, o.LocalRank)

	var help strings.Builder
	_, err = Parse([]string{"--help"}, env(), &help)
	assert.ErrorIs(t, err, flag.ErrHelp)
	assert.Contains(t, help.String(), "srun openai4s-agent")
}

func TestExpand(t *testing.T) {
	for _, tt := range []struct {
		list string
		want string // "!": an error
	}{
		{"n1", "n1"},
		{"n1,n2,login", "n1 n2 login"},
		{"n[1-3]", "n1 n2 n3"},
		{"n[1-2,5],gpu[09-11]", "n1 n2 n5 gpu09 gpu10 gpu11"},
		{"n[9-10]", "n9 n10"},
		{"n[1,1]", "n1 n1"},
		{"", "!"},
		{"n1,", "!"},
		{"n[1-2", "!"},
		{"n[2-1]", "!"},
		{"n[a]", "!"},
		{"n[-1]", "!"},
		{"n[1-2]x", "!"},
		{"n[0-9999999999]", "!"},
		{"n[0-2000000]", "!"},
	} {
		t.Run(tt.list, func(t *testing.T) {
			hosts, err := expand(tt.list)
			if tt.want == "!" {
				assert.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, strings.Join(hosts, " "))
		})
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"n[1-3]", "a,b[09-10,12]", "n[1-", "]", "[1-2]", "n[0-1048576],m[0-1048576]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := expand(list)
		if err == nil && (len(hosts) == 0 || len(hosts) > maxHosts+len(list)) {
			t.Fatalf("%d hosts in %q", len(hosts), list)
		}
	})
}

func TestLastWins(t *testing.T) {
	assert.Equal(t, []string{"B=1", "A=3", "C="}, lastWins([]string{"A=1", "B=1", "A=2", "A=3", "C="}))
	assert.Empty(t, lastWins(nil))
}

func TestProgressLines(t *testing.T) {
	for _, tt := range []struct {
		line     string
		ok       bool
		fraction float64
		phase    string
	}{
		{`@openai4s:progress {"fraction":0.4,"phase":"encoding"}`, true, 0.4, "encoding"},
		{`@lspo:progress {"fraction":1}`, true, 1, ""},
		{`@openai4s:progress {"fraction":0.5,"more":[1]}` + "\r", true, 0.5, ""},
		{`@openai4s:progress {"phase":"x"}`, false, 0, ""},
		{`@openai4s:progress {"fraction":1.1}`, false, 0, ""},
		{`@openai4s:progress {"fraction":-0.1}`, false, 0, ""},
		{`@openai4s:progress 0.4`, false, 0, ""},
		{` @openai4s:progress {"fraction":0.4}`, false, 0, ""},
		{`@openai4s:progress{"fraction":0.4}`, false, 0, ""},
		{`@openai4s:progress {"fraction":0.4,"phase":"` + strings.Repeat("p", 99) + `"}`, true, 0.4, strings.Repeat("p", 64)},
	} {
		r, ok := parseProgress([]byte(tt.line))
		assert.Equal(t, tt.ok, ok, tt.line)
		assert.Equal(t, tt.fraction, r.Fraction, tt.line)
		assert.Equal(t, tt.phase, r.Phase, tt.line)
	}
}
