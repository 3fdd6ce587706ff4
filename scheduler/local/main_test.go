package local_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openai4s/hpc/scheduler"
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
			for range time.NewTicker(20 * time.Millisecond).C {
				if _, err := os.Stat(os.Args[2]); err != nil {
					os.Exit(0) // its test is over
				}
			}
		case "submit": // DIR WORK: a submitter that goes away at once
			receipt, err := local.New(os.Args[2], []string{os.Args[0], "local-supervise"}).Submit(context.Background(), scheduler.Submission{
				Name: "job", Args: []string{"--chdir=" + os.Args[3]}, Script: []byte("sleep 0.3; echo late >late"),
			})
			if err != nil || receipt.Outcome != scheduler.Created {
				os.Exit(1)
			}
			os.Exit(0)
		case "broken-supervise":
			fmt.Fprintln(os.Stderr, "no \x1b[31msuch\x1b[0m luck")
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
