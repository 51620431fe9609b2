package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdline"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/exit"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/status"
	"github.com/dynxds/dynxds/internal/explain"
)

const explainHelp = `Says where an RPC goes, and why: which virtual host and route it takes and which condition of the
others failed, with which filters, timeout, retries and rewrites, to which clusters at which
odds, and what their priorities and endpoints are.

With a folder it is the RPC of a client of "dynxds serve DIR", which need not run; --client and
--kind describe the client. With HOST:PORT it asks a running process, of gRPC in any language, by
the Client Status Discovery Service (csds.Register). What the process holds is
routed by dynxds, and what its own client would do otherwise is said. A process of dynxds also says
which endpoints are connected; of others that is unknown.

With --expect, the exit status is 1 unless all RPCs go to the clusters that it names, and each of these gets some.

Where the control plane is "dynxds serve", what decided is followed by the file and line.`

func newExplain() *cobra.Command {
	var (
		of      explained
		headers []string
	)
	cmd := &cobra.Command{
		Use:   "explain DIR|HOST:PORT [TARGET] METHOD",
		Short: "Say where an RPC goes, and why",
		Long:  explainHelp,
		Example: "  dynxds explain examples/mesh/config --client service=frontend --service backend /pkg.Service/Method -H 'x-user: 7'\n" +
			"  dynxds explain localhost:50051 xds:///backend /pkg.Service/Method --expect 'backend;version=v1'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return fmt.Errorf("want two or three arguments, got %d: %s", len(args), cmd.UseLine())
			}
			return nil
		},
		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if of.request.Headers, err = headersOf(headers); err != nil {
				return err
			}
			if err := of.check(cmd, args); err != nil {
				return err
			}
			return of.process.show(cmd, func(ctx context.Context) (answer, error) { return of.explain(ctx, args[0]) })
		},
	}
	of.client.Add(cmd)
	f := cmd.Flags()
	f.StringVar(&of.service, "service", "", "the service that is called; short for the target xds:///SERVICE")
	completeServices(cmd, "service")
	f.StringArrayVarP(&headers, "header", "H", nil, "a header of the RPC, 'name: value'; may be repeated")
	f.StringArrayVar(&of.expected, "expect", nil, "a cluster that RPCs have to go to; may be repeated")
	f.StringVar(&of.request.Authority, "channel-authority", "", "the channel's authority, if grpc.WithAuthority sets it")
	f.StringVar(&of.request.Listener, "listener", "", "the name of the Listener, if the target does not give it")
	f.BoolVar(&of.request.Secure, "secure", false, "the channel has TLS, so that the scheme is https")
	of.process.add(cmd)
	return cmd
}

// explained is what to explain.
type explained struct {
	request  explain.Request
	service  string
	expected []string
	// client is that of a folder, and process says how to ask a process and what to show of an explanation.
	client  cmdline.Client
	process processFlags
}

// check checks the command line, and completes the request.
func (x *explained) check(cmd *cobra.Command, args []string) error {
	x.request.Method = args[len(args)-1]
	switch {
	case len(args) == 3 && x.service != "":
		return exit.Usagef("both --service %s and the target %s are given", x.service, args[1])
	case len(args) == 3:
		x.request.Target = args[1]
	case x.service != "":
		x.request.Target = "xds:///" + x.service
	default:
		return exit.Usagef("which service is called? Add --service NAME or the target, xds:///NAME: %s", cmd.UseLine())
	}
	if err := x.process.filter.Check(); err != nil {
		return exit.Usagef("--name %q: %w", x.process.filter.Name, err)
	}
	if isFolder(args[0]) {
		return exit.With(exit.Usage, x.request.Check())
	}
	if _, _, err := net.SplitHostPort(args[0]); err != nil {
		return exit.Usagef("%q is neither a folder nor the address of a process: %w", args[0], err)
	}
	for _, name := range []string{"client", "kind", "authority"} {
		if cmd.Flags().Changed(name) {
			return exit.Usagef("--%s is for a folder; the process at %s says itself who it is", name, args[0])
		}
	}
	x.process.process.Address = args[0]
	return exit.With(exit.Usage, x.request.Check())
}

// explain explains an RPC of a folder's client, or of a process.
func (x *explained) explain(ctx context.Context, of string) (answer, error) {
	var (
		e   *explain.Explanation
		err error
	)
	if x.process.process.Address != "" {
		e, err = status.Explain(ctx, x.process.process, x.request)
	} else {
		var source *explain.Source
		var notes []string
		view := x.client.View()
		view.Dir = of
		if source, notes, err = site.Source(view); err == nil {
			source.Notes = append(source.Notes, notes...)
			e, err = explain.Explain(source, x.request)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(x.expected) > 0 {
		if miss := e.Misses(x.expected); miss != "" {
			err = fmt.Errorf("RPCs do not go as --expect says: %s", miss)
		}
	}
	x.leaveOut(e)
	return e, err
}

// leaveOut leaves out the clusters whose names, and the endpoints whose states, are not asked for.
func (x *explained) leaveOut(e *explain.Explanation) {
	f := x.process.filter
	if f.State == "" && f.Name == "" {
		return
	}
	byName, byState := status.Filter{Name: f.Name}, status.Filter{State: f.State}
	e.Clusters = slices.DeleteFunc(e.Clusters, func(c explain.Cluster) bool { return !byName.Takes(c.Name) })
	for i := range e.Clusters {
		if a := e.Clusters[i].Assignment; a != nil {
			for j := range a.Priorities {
				for k := range a.Priorities[j].Localities {
					l := &a.Priorities[j].Localities[k]
					l.Endpoints = slices.DeleteFunc(l.Endpoints, func(e explain.Endpoint) bool { return !byState.Takes("", e.State, e.Health) })
				}
			}
		}
	}
}

// isFolder reports whether the first argument is a folder, not a process.
func isFolder(arg string) bool {
	info, err := os.Stat(arg)
	return err == nil && info.IsDir()
}

// headersOf reads headers as curl takes them, "name: value".
func headersOf(lines []string) (map[string][]string, error) {
	headers := make(map[string][]string, len(lines))
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, exit.Usagef("header %q: want 'name: value'", line)
		}
		headers[name] = append(headers[name], strings.TrimSpace(value))
	}
	return headers, nil
}
