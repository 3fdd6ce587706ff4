package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/openai4s/hpc/gateway/wire"
	"github.com/openai4s/hpc/internal/step"
)

// exitAbandoned is what the last rank leaves with where others never came or were lost, so that the launcher ends
// what is left of them.
const exitAbandoned = 1

// stayFor bounds how long the last rank of a cancelled gang waits for the scheduler to end the job.
const stayFor = 15 * time.Second

func (r *rank) leaveWith(code int) {
	r.code, r.over = code, true
	if r.stopDial != nil {
		r.stopDial()
	}
}

// leaveTold: all is over and the gateway has said the gang's code. It becomes the job's by RUN/exit-<epoch>, so the
// rank itself leaves with 0, or else its own code would count. Where RUN can't be written, its own code is the next best.
func (r *rank) leaveTold(o wire.StopOrder) {
	code := r.ownCode()
	if err := writeOnce(r.exitFile(), strconv.Itoa(o.ExitCode)+"\n"); err != nil {
		fmt.Fprintf(r.Stderr, "openai4s-agent: rank %d: the job's exit code can't be left in RUN: %v\n", r.Rank, err)
	} else {
		code = 0
	}
	if r.Rank == 0 {
		r.removeBundle()
	}
	if o.Fail {
		code = exitAbandoned
	}
	if o.Stay {
		r.code, r.staying = code, true
		r.leave = time.After(stayFor)
		return
	}
	r.leaveWith(code)
}

// writeOnce leaves a small file that every rank may write with the same content; the first one stays.
func writeOnce(path, content string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return renameio.WriteFile(path, []byte(content), 0o600)
}

// removeBundle removes the credentials of this epoch, which no start needs any more. Those of later epochs stay,
// whatever this one's end: ranks may have failed because the scheduler is about to start the job again.
func (r *rank) removeBundle() {
	if err := os.Remove(r.Bundle); err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(r.Stderr, "openai4s-agent: rank %d: removing the bundle: %v\n", r.Rank, err)
	}
}

// leaveAlone: nobody acknowledged the rank's end. It leaves its report in RUN, where the owner's next command finds it.
func (r *rank) leaveAlone() {
	if r.staying {
		r.leaveWith(r.code)
		return
	}
	if r.exit != nil && !r.acked && r.joined {
		report, err := json.Marshal(struct {
			Epoch  int64  `json:"epoch"`
			Rank   int    `json:"rank"`
			Code   int    `json:"code"`
			Signal int    `json:"signal,omitempty"`
			Cause  string `json:"cause,omitempty"`
			Host   string `json:"host,omitempty"`
		}{r.Epoch, r.Rank, r.exit.Code, r.exit.Signal, r.exit.Cause, r.Host})
		if err == nil {
			err = renameio.WriteFile(fmt.Sprintf("%s/exit-%d.%d", r.dir(), r.Epoch, r.Rank), report, 0o600)
		}
		if err != nil {
			fmt.Fprintf(r.Stderr, "openai4s-agent: rank %d: its end can't be reported: no gateway, and %v\n", r.Rank, err)
		}
	}
	code := r.ownCode()
	if _, err := os.Stat(r.exitFile()); err == nil && r.joined {
		code = 0 // the job's exit code stands in RUN
	}
	r.leaveWith(code)
}

// exitFile holds the exit code of the whole gang.
func (r *rank) exitFile() string {
	return filepath.Join(r.dir(), "exit-"+strconv.FormatInt(r.Epoch, 10))
}

// checkInputs holds the pinned inputs against what this node sees.
func (r *rank) checkInputs() error {
	if len(r.order.Inputs) == 0 {
		return nil
	}
	pinned := make([]step.Pinned, 0, len(r.order.Inputs))
	for _, in := range r.order.Inputs {
		pinned = append(pinned, step.Pinned{Path: in.Path, Name: in.Name, SHA256: in.SHA256, Size: in.Size})
	}
	return step.Check(r.ctx, pinned)
}

// publish brings the outputs out, from rank 0, whatever the end was.
func (r *rank) publish(o wire.StopOrder) {
	if r.order.Publish == "" {
		return
	}
	err := step.Publish(context.WithoutCancel(r.ctx), step.PublishSpec{
		Workload: r.head.Workload, Epoch: r.Epoch, Status: step.Status(o.Status), ExitCode: o.ExitCode, Error: o.Error,
		Workdir: r.order.Workdir, Ports: r.order.Ports, Dest: r.order.Publish,
	})
	if err != nil {
		fmt.Fprintf(r.Stderr, "openai4s-agent: publishing to %s: %s\n", r.order.Publish, strings.TrimSpace(err.Error()))
	}
}
