package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
the Client Status Discovery Service (csds.Register), without encryption. What the process holds is
routed by dynxds, and what its own client would do otherwise is said.

Where the control plane is "dynxds serve", what decided is followed by the file and line.`

func newExplain() *cobra.Command {
	var (
		of      explained
		client  clientFlags
		headers []string
		format  string
	)
	cmd := &cobra.Command{
		Use:   "explain DIR|HOST:PORT [TARGET] METHOD",
		Short: "Say where an RPC goes, and why",
		Long:  explainHelp,
		Example: "  dynxds explain examples/mesh/config --client service=frontend --service backend /pkg.Service/Method -H 'x-user: 7'\n" +
			"  dynxds explain localhost:50051 xds:///backend /pkg.Service/Method",
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
			e, err := of.explain(cmd, &client, args)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if format != "text" {
				return writeData(out, format, e)
			}
			_, err = fmt.Fprint(out, e.Text())
			return err
		},
	}
	client.add(cmd)
	f := cmd.Flags()
	f.StringVar(&of.service, "service", "", "the service that is called; short for the target xds:///SERVICE")
	f.StringArrayVarP(&headers, "header", "H", nil, "a header of the RPC, 'name: value'; may be repeated")
	f.StringVar(&of.request.Authority, "channel-authority", "", "the channel's authority, if grpc.WithAuthority sets it")
	f.StringVar(&of.request.Listener, "listener", "", "the name of the Listener, if the target does not give it")
	f.BoolVar(&of.request.Secure, "secure", false, "the channel has TLS, so that the scheme is https")
	timeoutFlag(cmd, &of.timeout, waitForAnswer)
	textOrData(cmd, &format)
	return cmd
}

// explained is what to explain.
type explained struct {
	request explain.Request
	service string
	// timeout is for a process.
	timeout time.Duration
}

// explain explains an RPC of a folder's client, or of a process.
func (x *explained) explain(cmd *cobra.Command, client *clientFlags, args []string) (*explain.Explanation, error) {
	x.request.Method = args[len(args)-1]
	switch {
	case len(args) == 3 && x.service != "":
		return nil, exit.Usagef("both --service %s and the target %s are given", x.service, args[1])
	case len(args) == 3:
		x.request.Target = args[1]
	case x.service != "":
		x.request.Target = "xds:///" + x.service
	default:
		return nil, exit.Usagef("which service is called? Add --service NAME or the target, xds:///NAME: %s", cmd.UseLine())
	}
	if err := x.request.Check(); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	if !isFolder(args[0]) {
		if _, _, err := net.SplitHostPort(args[0]); err != nil {
			return nil, exit.Usagef("%q is neither a folder nor the address of a process: %w", args[0], err)
		}
		for _, name := range []string{"client", "kind", "authority"} {
			if cmd.Flags().Changed(name) {
				return nil, exit.Usagef("--%s is for a folder; the process at %s says itself who it is", name, args[0])
			}
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), x.timeout)
		defer cancel()
		return status.Explain(ctx, args[0], x.request)
	}
	view := client.view(args[0])
	source, notes, err := site.Source(view)
	if err != nil {
		return nil, err
	}
	source.Notes = append(source.Notes, notes...)
	return explain.Explain(source, x.request)
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
