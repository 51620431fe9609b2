package command

import (
	"context"
	"net"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/internal/status"
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
	var of explained
	cmd := &cobra.Command{
		Use:   "explain DIR|HOST:PORT [TARGET] METHOD",
		Short: "Say where an RPC goes, and why",
		Long:  explainHelp,
		Example: "  dynxds explain examples/mesh/config --client service=frontend --service backend /pkg.Service/Method -H 'x-user: 7'\n" +
			"  dynxds explain localhost:50051 xds:///backend /pkg.Service/Method --expect 'backend;version=v1'",
		Args: cmdline.Arguments("two or three arguments", 2, 3),

		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := of.check(cmd, args); err != nil {
				return err
			}
			return show(cmd, &of.process, func(ctx context.Context) (*explain.Explanation, error) { return of.explain(ctx, args[0]) })
		},
	}
	of.client.Add(cmd)
	f := cmd.Flags()
	f.StringVar(&of.service, "service", "", "the service that is called; short for the target xds:///SERVICE")
	cmdline.Complete(cmd, "service", services)
	of.rpc.Add(cmd)
	of.process.add(cmd)
	return cmd
}

// explained is what to explain.
type explained struct {
	rpc     cmdline.RPC
	service string
	// client is that of a folder, and process says how to ask a process and what to show of an explanation.
	client  cmdline.Client
	process processFlags
}

// check checks the command line, and completes the request.
func (x *explained) check(cmd *cobra.Command, args []string) error {
	request := &x.rpc.Request
	request.Method = args[len(args)-1]
	switch {
	case len(args) == 3 && x.service != "":
		return exit.Usagef("both --service %s and the target %s are given", x.service, args[1])
	case len(args) == 3:
		request.Target = args[1]
	case x.service != "":
		request.Target = "xds:///" + x.service
	default:
		return exit.Usagef("which service is called? Add --service NAME or the target, xds:///NAME: %s", cmd.UseLine())
	}
	if _, _, err := explain.ParseTarget(request.Target); err != nil {
		return exit.With(exit.Usage, err)
	}
	if err := x.process.filter.Check(); err != nil {
		return exit.Usagef("--name %q: %w", x.process.filter.Name, err)
	}
	if isFolder(args[0]) {
		return x.rpc.Check()
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
	return x.rpc.Check()
}

// explain explains an RPC of a folder's client, or of a process.
func (x *explained) explain(ctx context.Context, of string) (e *explain.Explanation, err error) {
	if x.process.process.Address != "" {
		e, err = status.Explain(ctx, x.process.process, x.rpc.Request)
	} else {
		view := x.client.View()
		view.Dir = of
		e, err = site.ExplainRPC(view, x.rpc.Request)
	}
	if err != nil {
		return nil, err
	}
	err = x.rpc.Judge(e)
	x.leaveOut(e)
	return e, err
}

// leaveOut leaves out the clusters whose names, and the endpoints whose states, are not asked for.
func (x *explained) leaveOut(e *explain.Explanation) {
	byName, byState := status.Filter{Name: x.process.filter.Name}, status.Filter{State: x.process.filter.State}
	e.Clusters = slices.DeleteFunc(e.Clusters, func(c *explain.Cluster) bool { return !byName.Takes(c.Name) })
	for i := range e.Clusters {
		if a := e.Clusters[i].Assignment; a != nil {
			for j := range a.Priorities {
				for k := range a.Priorities[j].Localities {
					l := &a.Priorities[j].Localities[k]
					l.Endpoints = slices.DeleteFunc(l.Endpoints, func(e inspect.Endpoint) bool { return !byState.Takes("", string(e.State), e.Health) })
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
