package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/openai4s/hpc/internal/daemon"
)

type serveCmd struct{}

// Run serves until SIGTERM.
func (serveCmd) Run(a *app) error {
	o, err := a.options()
	if err != nil {
		return err
	}
	o.Log = zerolog.New(a.stderr).With().Timestamp().Logger()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := daemon.Run(ctx, o, func(daemon.Running) {}); err != nil {
		return err
	}
	o.Log.Info().Msg("ended")
	return nil
}
