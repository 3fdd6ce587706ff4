package pbs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/scheduler"
)

func TestCase65CancelTakesTheJobMeant(t *testing.T) {
	ann := scheduler.Identity{User: "ann", Name: "x"}
	show := func(state string) string { return "printf '" + observed("1.s", state) + "'" }
	for name, c := range map[string]struct {
		qstat, qdel string
		who         scheduler.Identity
		err         error
		calls       string
	}{
		"ours":                       {qstat: show("R"), qdel: "exit 0", who: ann, calls: "qdel 1.s\n"},
		"another's":                  {qstat: show("R"), qdel: "exit 0", who: scheduler.Identity{User: "bob", Name: "x"}, err: scheduler.ErrNotOurs},
		"another name":               {qstat: show("R"), qdel: "exit 0", who: scheduler.Identity{User: "ann", Name: "y"}, err: scheduler.ErrNotOurs},
		"over":                       {qstat: show("F"), qdel: "exit 0", who: ann, err: scheduler.ErrNoSuchJob},
		"unknown":                    {qstat: "echo 'qstat: Unknown Job Id 1.s' >&2; exit 153", qdel: "exit 0", who: ann, err: scheduler.ErrNoSuchJob},
		"hidden":                     {qstat: "exit 0", qdel: "exit 0", who: ann, err: scheduler.ErrNoAnswer},
		"server down at qstat":       {qstat: answer(t, "serverdown.qstat_-x_-f_-F_json_537.pbshead"), qdel: "exit 0", who: ann, err: scheduler.ErrNoAnswer},
		"server down at qdel":        {qstat: show("R"), qdel: answer(t, "serverdown.qdel_537.pbshead"), who: ann, err: scheduler.ErrNoAnswer, calls: "qdel 1.s\n"},
		"finished in between":        {qstat: show("R"), qdel: answer(t, "qdel-finished"), who: ann, err: scheduler.ErrNoSuchJob, calls: "qdel 1.s\n"},
		"purged in between":          {qstat: show("R"), qdel: answer(t, "qdel-unknown"), who: ann, err: scheduler.ErrNoSuchJob, calls: "qdel 1.s\n"},
		"not allowed":                {qstat: show("R"), qdel: answer(t, "qdel-other"), who: ann, err: scheduler.ErrNotOurs, calls: "qdel 1.s\n"},
		"the first node is gone":     {qstat: show("R"), qdel: `[ "$1" = -W ] && exit 0` + "\n" + answer(t, "qdel-while-ms-down"), who: ann, calls: "qdel 1.s\nqdel -W force 1.s\n"},
		"ending already":             {qstat: show("E"), qdel: "exit 168", who: ann, calls: "qdel 1.s\n"},
		"force isn't allowed either": {qstat: show("R"), qdel: "exit 222", who: ann, err: scheduler.ErrNoAnswer, calls: "qdel 1.s\nqdel -W force 1.s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := stub(t, map[string]string{"qstat": c.qstat, "qdel": c.qdel})
			err := s.Cancel(t.Context(), scheduler.JobID{ID: "1.s"}, c.who)
			if c.err == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.err)
			}
			_, calls, _ := strings.Cut(log(), "qdel ")
			if calls != "" {
				calls = "qdel " + calls
			}
			assert.Equal(t, c.calls, calls)
		})
	}
}
