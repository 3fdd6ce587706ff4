package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/internal/daemon"
	"github.com/openai4s/hpc/sbatch"
	"github.com/openai4s/hpc/site"
)

const (
	// startingFor is how long another process that holds the embedded state may take until it answers.
	startingFor = 10 * time.Second
	// startingPoll is the pause between two looks at it.
	startingPoll = 50 * time.Millisecond
)

// gatewayFlags are those of every command that talks to a gateway.
type gatewayFlags struct {
	Embedded bool `help:"Use the gateway inside this program even where the site has a daemon."`
}

// connection is a gateway that answers: a daemon, the embedded one of another command, or one that this process
// serves itself.
type connection struct {
	app      *app
	site     site.Site
	embedded bool

	mu     sync.Mutex
	client *api.Client
	info   api.Info
	own    *ownGateway // nil where another process serves
}

// connect finds the site's gateway. A daemon that the site names and that doesn't answer is an error: nothing
// stands in for it silently.
func (a *app) connect(ctx context.Context, s site.Site, flags gatewayFlags) (*connection, error) {
	c := &connection{app: a, site: s, embedded: flags.Embedded || s.Gateway.Control == ""}
	if err := c.dial(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// gateway is the client of the moment; an embedded gateway may change processes.
func (c *connection) gateway() *api.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}

// serving is the gateway of this very process, or nil.
func (c *connection) serving() *ownGateway {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// dial connects, or connects anew after the process that served went away.
func (c *connection) dial(ctx context.Context) error {
	if !c.embedded {
		client, info, err := c.dialSite(ctx)
		if err != nil {
			return c.nobody(err)
		}
		c.adopt(client, info, nil)
		return nil
	}
	dir, err := stateDir(c.site)
	if err != nil {
		return err
	}
	socket := daemon.ControlSocket(dir)
	giveUp := time.Now().Add(startingFor)
	for {
		client, info, err := api.Dial(ctx, socket)
		if err == nil {
			c.adopt(client, info, nil)
			return nil
		}
		if !errors.Is(err, api.ErrNobody) {
			return fmt.Errorf("asking the gateway at %s: %w", socket, err)
		}
		own, err := c.app.serve(ctx, c.site, dir, socket)
		if err == nil {
			client, info, err := api.Dial(ctx, socket)
			if err != nil {
				return errors.Join(fmt.Errorf("asking the embedded gateway: %w", err), own.stop())
			}
			c.adopt(client, info, own)
			return nil
		}
		if !errors.Is(err, daemon.ErrLocked) {
			return err
		}
		// Somebody else holds the state: it is starting, or on its way out.
		if time.Now().After(giveUp) {
			return &failure{exit: exitNobody, cause: err,
				message: fmt.Sprintf("another process holds %s and doesn't answer on %s", dir, socket),
				hint:    "look for an openai4s that hangs; once it is gone, the next command takes over"}
		}
		select {
		case <-time.After(startingPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *connection) adopt(client *api.Client, info api.Info, own *ownGateway) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client, c.info, c.own = client, info, own
}

// dialSite connects to the daemon that the site names.
func (c *connection) dialSite(ctx context.Context) (*api.Client, api.Info, error) {
	g := c.site.Gateway
	if !g.ControlIsRemote() {
		return api.Dial(ctx, g.Control)
	}
	if len(g.ControlPins) == 0 {
		return nil, api.Info{}, &failure{exit: exitBadFile,
			message: fmt.Sprintf("%s names no control_pins, so the gateway at %s can't be told from another program", c.site.Path, g.Control),
			hint:    "the site's administrator writes there what openai4s-gateway pin prints on the gateway's host"}
	}
	return api.DialRemote(ctx, api.Remote{Address: g.Control, Pins: g.ControlPins, Munge: c.site.Commands["munge"]})
}

// nobody says what is to be done where the daemon that the site names doesn't answer, or not as it should.
func (c *connection) nobody(err error) error {
	known, answer := new(failure), new(api.Error)
	at := c.site.Gateway.Control
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, api.ErrWrongKey):
		return &failure{exit: exitNobody, cause: err,
			message: fmt.Sprintf("what answers at %s isn't the gateway that %s names: %v", at, c.site.Path, api.ErrWrongKey),
			hint:    "ask the site's administrators: a new key's pin belongs into control_pins; nothing was told to it"}
	case errors.Is(err, api.ErrMunge):
		return &failure{exit: exitNobody, cause: err, message: "the gateway at " + at + " can't be told who asks: " + plain(err),
			hint: "tell the site's administrators: munged must run on this host; nothing was done"}
	case errors.As(err, &answer), !errors.Is(err, api.ErrNobody):
		return fmt.Errorf("asking the gateway at %s: %w", at, err)
	case c.site.Gateway.ControlIsRemote():
		return &failure{exit: exitNobody, cause: err,
			message: fmt.Sprintf("nobody answers at %s, where %s says the site's gateway is: %s", at, c.site.Path, plain(err)),
			hint:    "start it on that host with: openai4s-gateway --site " + sbatch.Quote(c.site.Path)}
	}
	return &failure{exit: exitNobody, cause: err,
		message: fmt.Sprintf("nobody answers on %s, where %s says the site's gateway is", at, c.site.Path),
		hint:    "start it with: openai4s-gateway --site " + sbatch.Quote(c.site.Path)}
}

// plain is an error's text without the words that nobody answers.
func plain(err error) string {
	return word(strings.TrimPrefix(err.Error(), api.ErrNobody.Error()+": "))
}

// close ends the gateway if this process serves it.
func (c *connection) close() error {
	if own := c.serving(); own != nil {
		return own.stop()
	}
	return nil
}
