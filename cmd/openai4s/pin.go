package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/docker/go-units"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/openai4s/hpc/internal/step"
	"github.com/openai4s/hpc/scheduler"
)

// tellPinning is the size of all inputs, in bytes, from which hashing them takes long enough to be shown.
const tellPinning = 256 << 20

// pin fixes every input by hash and size. An input that the job file pinned already must still be that.
func (a *app) pin(ctx context.Context, j scheduler.Job) ([]scheduler.Input, error) {
	if len(j.Inputs) == 0 {
		return nil, nil
	}
	var total int64
	for i, in := range j.Inputs {
		info, err := os.Stat(in.Path)
		switch {
		case err != nil:
			return nil, badInput(j, i, err, "inputs are read where the job is submitted")
		case !info.Mode().IsRegular():
			return nil, badInput(j, i, fmt.Errorf("%s is not a regular file", in.Path), "name files one by one")
		}
		total += info.Size()
	}
	shown := a.showPinning(total, len(j.Inputs))
	defer shown.close()
	pinned := make([]scheduler.Input, 0, len(j.Inputs))
	for i, in := range j.Inputs {
		sum, size, err := step.Pin(ctx, in.Path, shown.within)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, badInput(j, i, err, "")
		case in.SHA256 != "" && in.SHA256 != sum:
			return nil, badInput(j, i, fmt.Errorf("%s hashes to %s, the job file says %s", in.Path, sum, in.SHA256),
				"bring the file back, or take the new hash over into the job file")
		}
		in.SHA256, in.Size = sum, size
		pinned = append(pinned, in)
		shown.next(size)
	}
	return pinned, nil
}

func badInput(j scheduler.Job, i int, err error, hint string) error {
	return &failure{exit: exitBadFile, cause: err, message: fmt.Sprintf("%s: inputs[%d]: %v", j.File, i, err), hint: hint}
}

// pinning shows how far the hashing is; the zero value shows nothing.
type pinning struct {
	progress *mpb.Progress
	bar      *mpb.Bar
	before   int64 // bytes of the files that are done
}

func (a *app) showPinning(total int64, files int) *pinning {
	if total < tellPinning || a.json {
		return &pinning{}
	}
	if !a.live {
		a.note("hashing %s, %s", count(files, "input"), units.BytesSize(float64(total)))
		return &pinning{}
	}
	p := mpb.New(mpb.WithOutput(a.err.to), mpb.WithWidth(64), mpb.WithRefreshRate(100*time.Millisecond))
	return &pinning{progress: p, bar: p.AddBar(total,
		mpb.PrependDecorators(decor.Name("hashing inputs ")),
		mpb.AppendDecorators(decor.CountersKibiByte(" % .1f / % .1f")),
	)}
}

func (p *pinning) within(done, _ int64) {
	if p.bar != nil {
		p.bar.SetCurrent(p.before + done)
	}
}

func (p *pinning) next(size int64) { p.before += size }

func (p *pinning) close() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.progress.Wait()
	}
}
