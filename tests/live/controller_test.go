//go:build live

package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// TestControllerAway: slurmctld is gone for a minute while 20 workloads run, and half of them end meanwhile. Nothing
// is declared to be anything until somebody who knows says so.
func TestControllerAway(t *testing.T) {
	t.Parallel()
	const workloads, away = 20, time.Minute
	own := cluster.Up(t, cluster.Options{CPUs: 16, Accounting: true, Set: []string{killWait}})
	r := rig.New(t, rig.Options{Cluster: own})
	alice := r.Alice(t)
	flag := filepath.Join(alice.Home, "go")
	var ids []string
	for n := range workloads {
		id := alice.Submit(t, rig.Shell(1, fmt.Sprintf(`while ! test -e %s%d; do sleep 0.5; done; exit %d`, flag, n%2, n%4/2*3), ""))
		ids = append(ids, id)
	}
	for _, id := range ids {
		alice.AwaitPhase(t, id, "ACTIVE")
	}
	own.Stop(t, "slurmctld")
	began := time.Now()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	require.NoError(t, os.WriteFile(flag+"0", nil, 0o644))
	for time.Since(began) < away {
		for n, w := range byID(alice.List(t), ids) {
			allowed := []string{"ACTIVE"}
			if n%2 == 0 { // its ranks have told their end
				allowed = append(allowed, "RELEASING", []string{"COMPLETED", "FAILED"}[n%4/2])
			}
			require.Contains(t, allowed, w.Phase(), "%d, while nobody could know: %s", n, w)
		}
		<-look.C
	}
	own.Heal(t)
	require.NoError(t, os.WriteFile(flag+"1", nil, 0o644))
	for n, id := range ids {
		w := alice.AwaitEnd(t, id)
		if n%4/2 == 1 {
			require.Equal(t, "COMMAND_FAILED", w.Text("reason"), "%s", w)
			require.Equal(t, 3, w.Int("result", "exit_code"), "%s", w)
		} else {
			require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
		}
	}
}

// byID puts workloads in the order of their ids.
func byID(all []rig.Doc, ids []string) []rig.Doc {
	in := make([]rig.Doc, len(ids))
	for n, id := range ids {
		for _, w := range all {
			if w.Text("id") == id {
				in[n] = w
			}
		}
	}
	return in
}
