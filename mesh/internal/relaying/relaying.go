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

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/admission"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/metrics"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Options configure Run.
type Options struct {
	// Bootstrap is the path of the file.
	Bootstrap string
	// Relay configures the relay. Its Bootstrap, Access and Log, and of its Server the limits, are set by Run.
	Relay relay.Options
	// Serve configures the server. Its Log is used for everything.
	Serve serve.Options
	// Ready is called with the address when the server is ready. It may be nil.
	Ready func(net.Addr)
}

// relayOptions returns the options of the relay with what is in files, and in the options of the server.
func (o *Options) relayOptions() (relay.Options, error) {
	r := o.Relay
	if o.Bootstrap == "" {
		return r, errors.New("--bootstrap is missing: the file with the management servers, as clients have it; see dynxds bootstrap")
	}
	content, err := os.ReadFile(o.Bootstrap)
	if err != nil {
		return r, fmt.Errorf("--bootstrap: %w", err)
	}
	if r.Bootstrap, err = bootstrap.Parse(o.Bootstrap, content); err != nil {
		return r, fmt.Errorf("--bootstrap: %w", err)
	}
	r.Access, err = o.Serve.Access()
	r.Log, r.Server.WrapResources = o.Serve.Log, true
	r.Server.MaxSubscriptions, r.Server.MaxStreams = o.Serve.MaxSubscriptions, o.Serve.MaxStreams
	// Each stream upstream has a connection of its own; some descriptors are left for pages and files.
	descriptors := admission.Descriptors()
	o.Serve.Connections = min(bounds.Connections, descriptors/2)
	r.MaxGroups = min(cmp.Or(r.MaxGroups, relay.DefaultMaxGroups), descriptors/4)
	return r, err
}

// upstream says that the management servers of the relay are unreachable, "" if they are not.
func upstream(s relay.Stats) string {
	if s.Unreachable == 0 {
		return ""
	}
	return "the control plane is unreachable since " + s.UnreachableSince.UTC().Format(time.RFC3339) + "; clients are served from the cache"
}

// Run runs a relay until the context ends, and then drains.
func Run(ctx context.Context, opts Options) error {
	if opts.Serve.Log == nil {
		opts.Serve.Log = slog.New(slog.DiscardHandler)
	}
	o, err := opts.relayOptions()
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	plane := metrics.New()
	o.Server.OnACK, o.Server.OnRefused = plane.ACKed, plane.Limited
	o.Server.OnNACK = func(r controlplane.Rejection) {
		serve.LogRejection(opts.Serve.Log, r)
		plane.NACKed(r)
	}
	r, err := relay.New(o)
	if err != nil {
		return err
	}
	defer r.Close()
	plane.AddRelay(r.Stats)
	opts.Serve.Metrics = plane
	opts.Serve.Upstream = func() string { return upstream(r.Stats()) }
	server, err := serve.New(r, opts.Serve)
	if err != nil {
		return err
	}
	server.SetReady(true)
	opts.Serve.Log.Info("relaying", "address", server.Addr().String(), "bootstrap", opts.Bootstrap, "one_group", o.OneGroup)
	if opts.Ready != nil {
		opts.Ready(server.Addr())
	}
	return server.Serve(ctx)
}
