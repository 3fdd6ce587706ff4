package local_test

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openai4s/hpc/scheduler/local"
)

// TestMain lets the test binary stand for the programs that jobs run.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 || len(os.Args) == 2 && !strings.HasPrefix(os.Args[1], "-") {
		switch os.Args[1] {
		case "local-supervise":
			os.Exit(local.Supervise(os.Args[2]))
		case "local-launch":
			os.Exit(local.Launch(os.Args[2:]))
		case "mute-supervise": // takes no job, and doesn't go away either
			held := make(chan os.Signal, 1)
			signal.Notify(held, unix.SIGTERM)
			select {
			case <-held:
			case <-time.After(20 * time.Second):
			}
			os.Exit(0)
		case "broken-supervise":
			fmt.Fprintln(os.Stderr, "no \x1b[31msuch\x1b[0m luck")
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
