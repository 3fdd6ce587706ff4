package agent

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/wire"
)

// Case 64's other half: the scheduler's TERM may reach the command before its agent. It is the scheduler's all the same.
func TestTermThatTheCommandFeltFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		then   func(*program)
		cause  string
		signal int
		code   int
	}{
		"then the scheduler's":      {`kill -TERM $$`, func(a *program) { a.signal(syscall.SIGTERM) }, wire.CauseScheduler, 15, 0},
		"its code, then":            {`exit 143`, func(a *program) { a.signal(syscall.SIGTERM) }, wire.CauseScheduler, 0, 143},
		"and nothing comes":         {`kill -TERM $$`, func(*program) {}, "", 15, 0},
		"the warning of a walltime": {`kill -TERM $$`, func(a *program) { a.signal(syscall.SIGWINCH) }, wire.CauseWalltime, 15, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, 1)
			a := f.agent(0)
			p := f.joined()
			o := f.order("sh", "-c", `echo $$ >pid; until test -e go; do sleep 0.01; done; `+tt.script)
			p.order(wire.Start, o)
			pid := pidIn(t, filepath.Join(o.Workdir, "pid"))
			touch(t, filepath.Join(o.Workdir, "go"))
			gone(t, pid)
			tt.then(a)
			e := p.exit()
			assert.Equal(t, tt.cause, e.Cause)
			assert.Equal(t, tt.signal, e.Signal)
			assert.Equal(t, tt.code, e.Code)
			p.finish(e, wire.StopOrder{ExitCode: 143, Status: "failed"})
			a.code()
		})
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, nil, 0o600))
}
