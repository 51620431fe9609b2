// Package relaying runs a relay as a server: package relay behind package serve, with a bootstrap from a
// file. It is what "dynxds relay" does.
package relaying

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/metrics"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/repeatlog"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Options configure Run, by the flags of the command.
type Options struct {
	// Bootstrap is the path of the file.
	Bootstrap string
	// FoldBy is read by relay.ParseFold.
	FoldBy string
	// AwayDelay is relay.Options.AwayDelay, but zero is not at all.
	AwayDelay time.Duration
	// Linger and RemovalDelay are zero for not at all.
	Linger, RemovalDelay time.Duration
	// MaxUpstreams and MaxGroupSubscriptions are positive.
	MaxUpstreams, MaxGroupSubscriptions int
	// Serve configures the server. Its Log is used for everything.
	Serve serve.Options
	// Ready is called with the address when the server is ready. It may be nil.
	Ready func(net.Addr)
}

// relayOptions reads the files and checks the flags.
func (o *Options) relayOptions() (relay.Options, error) {
	if o.Bootstrap == "" {
		return relay.Options{}, errors.New("--bootstrap is missing: the file with the management servers, as clients have it; see dynxds bootstrap")
	}
	content, err := os.ReadFile(o.Bootstrap)
	if err != nil {
		return relay.Options{}, fmt.Errorf("--bootstrap: %w", err)
	}
	cfg, err := bootstrap.Parse(o.Bootstrap, content)
	if err != nil {
		return relay.Options{}, fmt.Errorf("--bootstrap: %w", err)
	}
	fold, err := relay.ParseFold(o.FoldBy)
	var faults []error
	if err != nil {
		faults = append(faults, fmt.Errorf("--fold-by: %w", err))
	}
	access, err := o.Serve.Access()
	if err != nil {
		faults = append(faults, err)
	}
	for _, check := range []struct {
		faulty bool
		text   string
	}{
		{o.AwayDelay < 0, "--away-delay is negative"},
		{o.Linger < 0, "--linger is negative"},
		{o.RemovalDelay < 0, "--removal-delay is negative"},
		{o.MaxUpstreams <= 0, "--max-upstreams is not positive"},
		{o.MaxGroupSubscriptions <= 0, "--max-group-subscriptions is not positive"},
	} {
		if check.faulty {
			faults = append(faults, errors.New(check.text))
		}
	}
	return relay.Options{
		Bootstrap: cfg, FoldBy: fold, MaxGroups: o.MaxUpstreams, MaxGroupSubscriptions: o.MaxGroupSubscriptions, Log: o.Serve.Log,
		Access: access, AwayDelay: cmp.Or(o.AwayDelay, -1),
		Linger: cmp.Or(o.Linger, -1), // zero means the default there, as with the other durations
		Server: controlplane.Options{
			WrapResources: true, RemovalDelay: cmp.Or(o.RemovalDelay, -1),
			MaxSubscriptions: o.Serve.MaxSubscriptions, Limits: o.Serve.Limits,
		},
	}, errors.Join(faults...)
}

// Run runs a relay until the context ends, and then drains.
func Run(ctx context.Context, opts Options) error {
	if opts.Serve.Log == nil {
		opts.Serve.Log = slog.New(slog.DiscardHandler)
	}
	o, err := opts.relayOptions()
	if err != nil {
		return err
	}
	rejections := repeatlog.New(opts.Serve.Log)
	defer rejections.Close()
	plane := metrics.New()
	o.Server.OnACK, o.Server.Limits.OnRefused = plane.ACKed, plane.Limited
	o.Server.OnNACK = func(r controlplane.Rejection) {
		rejections.Add(serve.RejectionEvent(r))
		plane.NACKed(r)
	}
	r, err := relay.New(o)
	if err != nil {
		return err
	}
	defer r.Close()
	plane.AddRelay(r.Stats)
	opts.Serve.Metrics = plane
	server, err := serve.New(r, opts.Serve)
	if err != nil {
		return err
	}
	server.SetReady(true)
	opts.Serve.Log.Info("relaying", "address", server.Addr().String(), "bootstrap", opts.Bootstrap, "fold_by", o.FoldBy.String())
	if opts.Ready != nil {
		opts.Ready(server.Addr())
	}
	return server.Serve(ctx)
}
