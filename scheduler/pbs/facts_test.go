package pbs

import (
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

func TestVersions(t *testing.T) {
	for text, ok := range map[string]bool{
		"pbs_version = 23.06.06":                  true,
		"pbs_version = 19.1.3.20190813":           true,
		"pbs_version = 2022.1.1":                  true,
		"pbs_version = 18.1.4":                    false,
		"pbs_version = PBSPro_13.1.0.160576":      false,
		"Version: 6.1.2\nCommit: 661e092552de43a": false,
		"version: 2.5.13":                         false,
	} {
		t.Run(text, func(t *testing.T) {
			s, log := stub(t, map[string]string{"qstat": `[ "$1" = --version ] && { printf '` + text + `\n'; exit 0; }
printf '` + observed("1.s", "R") + `'`, "qsub": "echo 1.s"})
			_, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}})
			_, submitErr := s.Submit(t.Context(), submission())
			if ok {
				require.NoError(t, err)
				require.NoError(t, submitErr)
				return
			}
			require.ErrorIs(t, err, scheduler.ErrUnsupported)
			require.ErrorIs(t, submitErr, scheduler.ErrUnsupported)
			assert.ErrorContains(t, err, "not supported: needs PBS Pro 19 or OpenPBS")
			assert.NotContains(t, log(), "qsub", "nothing is handed to a scheduler that reads it otherwise")
		})
	}
	t.Run("a wrapper hides the option", func(t *testing.T) {
		s, _ := stub(t, map[string]string{"qstat": `[ "$1" = --version ] && exit 2
` + answer(t, "qstat-B-json")})
		v, err := s.supported(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "23.06.06", v)
	})
	t.Run("nothing to be learnt", func(t *testing.T) {
		s, _ := stub(t, map[string]string{"qstat": `[ "$1" = --version ]; exit 1`})
		_, err := s.Observe(t.Context(), []scheduler.JobID{{ID: "1.s"}})
		require.ErrorIs(t, err, scheduler.ErrNoAnswer)
	})
}

func TestFactsAndInspect(t *testing.T) {
	s, _ := stub(t, map[string]string{"qstat": `case "$1" in
-B) ` + strings.ReplaceAll(answer(t, "qstat-B-json"), "\n", ";") + ` ;;
-Q) ` + strings.ReplaceAll(answer(t, "qstat-Q-json"), "\n", ";") + ` ;;
esac`, "pbsnodes": answer(t, "pbsnodes-json")})
	f, err := s.Facts(t.Context())
	require.NoError(t, err)
	assert.Equal(t, scheduler.Facts{Version: "23.06.06", Cluster: "pbshead", KillDelay: 10 * time.Second,
		MinJobAge: 14 * 24 * time.Hour, Accounting: true, SeesOthers: true}, f)
	c, err := s.Inspect(t.Context())
	require.NoError(t, err)
	require.Len(t, c.Partitions, 2)
	assert.Equal(t, scheduler.PartitionFacts{Name: "short", Up: true, Nodes: 4, MaxTime: 10 * time.Minute, DefaultTime: 5 * time.Minute,
		CPUsPerNode: 4, GPUsPerNode: 2, MemoryPerNode: 24683620 << 10}, c.Partitions[0])
	assert.Equal(t, "workq", c.Partitions[1].Name)
	assert.True(t, c.Partitions[1].Default)
	assert.Empty(t, c.Warnings)
}

func TestFactsOfAnErrorThatIsValidJSON(t *testing.T) {
	s, _ := stub(t, map[string]string{"qstat": answer(t, "serverdown.qstat_-f_-F_json")})
	_, err := s.Facts(t.Context())
	require.ErrorIs(t, err, scheduler.ErrNoAnswer)
}

func TestSeesOthers(t *testing.T) {
	me, err := user.Current()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		server object
		want   bool
	}{
		"off":          {object{"query_other_jobs": "False", "managers": "root2@head"}, false},
		"a manager":    {object{"query_other_jobs": "False", "managers": "boss@head," + me.Username + "@*"}, true},
		"an operator":  {object{"query_other_jobs": "False", "operators": me.Username + "@head"}, true},
		"not set is a": {object{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, c.server.flag("query_other_jobs", true) || isManager(c.server))
		})
	}
}

func TestSizesAndTimes(t *testing.T) {
	for text, n := range map[string]int64{"24683620kb": 24683620 << 10, "64gb": 64 << 30, "1tb": 1 << 40, "2gw": 16 << 30, "100": 100, "100b": 100, "": 0, "x": 0, "-1kb": 0, "99999999999pb": 0} {
		assert.Equal(t, n, size(text), text)
	}
	for text, d := range map[string]time.Duration{"90": 90 * time.Second, "01:30": 90 * time.Second, "100:00:00": 100 * time.Hour, "": time.Minute, "x": time.Minute} {
		assert.Equal(t, d, seconds(text, time.Minute), text)
	}
}
