package rig

import (
	"fmt"
	"os"
	"runtime/debug"
	"testing"
)

// Main runs a package's tests around what they share: setup makes it, with a TB whose cleanups run after the last
// test. The result is for os.Exit.
func Main(m *testing.M, setup func(testing.TB)) (code int) {
	p := &process{}
	defer func() {
		if broken := recover(); broken != nil {
			if broken != errFatal {
				fmt.Fprintf(os.Stderr, "%v\n%s", broken, debug.Stack())
			}
			p.failed = true
		}
		p.cleanup()
		if dir, err := built(); err == nil && os.Getenv(ProgramsVariable) == "" {
			os.RemoveAll(dir)
		}
		if code == 0 && p.failed {
			code = 1
		}
	}()
	setup(p)
	code = m.Run()
	p.failed = p.failed || code != 0
	return code
}

// errFatal is what Fatal of a process throws.
var errFatal = fmt.Errorf("setting up")

// process is the TB of a whole test process. What it doesn't define must not be called.
type process struct {
	testing.TB
	cleanups []func()
	failed   bool
}

func (p *process) Helper()                 {}
func (p *process) Name() string            { return "process" }
func (p *process) Failed() bool            { return p.failed }
func (p *process) Cleanup(f func())        { p.cleanups = append(p.cleanups, f) }
func (p *process) Log(a ...any)            { fmt.Fprintln(os.Stderr, a...) }
func (p *process) Logf(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }
func (p *process) Error(a ...any)          { p.Log(a...); p.failed = true }
func (p *process) Errorf(f string, a ...any) {
	p.Logf(f, a...)
	p.failed = true
}
func (p *process) FailNow()                  { p.failed = true; panic(errFatal) }
func (p *process) Fatal(a ...any)            { p.Log(a...); panic(errFatal) }
func (p *process) Fatalf(f string, a ...any) { p.Logf(f, a...); panic(errFatal) }

// Skip is a failure here: who asks for these tests wants them run.
func (p *process) Skip(a ...any)            { p.Fatal(a...) }
func (p *process) Skipf(f string, a ...any) { p.Fatalf(f, a...) }

func (p *process) cleanup() {
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
}
