package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

const validateHelp = `Reads a cluster as "dynxds-kubernetes serve" does, and prints what is wrong with its
routes and policies, and what in them clients cannot do, by kind of client. What would be
served is decoded as clients of dynxds decode it. The exit status is 0 only if every route
and policy is used, no client would get an error in the place of a resource, and no client
of dynxds would reject one.

` + cmdline.ForCI

func newValidate() *cobra.Command {
	var (
		f          flags
		validating cmdline.Validating
	)
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check what a cluster has for gRPC clients",
		Long:  validateHelp,
		Args:  cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			content, where, err := f.read(cmd)
			if err != nil {
				return err
			}
			v, err := site.ValidateContent(content, f.opts.Authority)
			return validating.Print(cmd.OutOrStdout(), v, err, where, "Service")
		},
	}
	f.clusterFlags(cmd)
	cmd.Flags().StringVar(&f.opts.Authority, "authority", "", "as for dynxds-kubernetes serve")
	validating.Add(cmd)
	return cmd
}

const renderHelp = `Prints the resources that a client with these tags would get from "dynxds-kubernetes
serve", or, with --explain, which routes and policies apply to its requests, and from which
of them each field of the merged rules comes. Tags are namespace, service (ACCOUNT.NAMESPACE),
service_account, pod, node and zone.

The output, YAML or JSON, has a document for each resource, or for the error in its place.`

func newRender() *cobra.Command {
	var (
		f         flags
		client    cmdline.Client
		rendering cmdline.Rendering
	)
	cmd := &cobra.Command{
		Use:     "render",
		Short:   "Print what a client would get from a cluster",
		Long:    renderHelp,
		Example: "  dynxds-kubernetes render --service backend.shop --client namespace=shop,service=frontend.shop --explain",
		Args:    cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			content, _, err := f.read(cmd)
			if err != nil {
				return err
			}
			view := client.View()
			view.Content, view.Service = content, serviceNamed(content, view.Service, view.Tags[meshpolicy.NamespaceTag])
			return rendering.Print(cmd.OutOrStdout(), view)
		},
	}
	f.clusterFlags(cmd)
	client.Add(cmd)
	cmd.Flags().StringVar(&client.Of.Service, "service", "", "only what a channel to this Service gets: NAME.NAMESPACE, with :PORT or without, or as a client of the namespace dials it")
	rendering.Add(cmd)
	return cmd
}

const explainHelp = `Says where an RPC of a client of "dynxds-kubernetes serve" goes, and why, as "dynxds explain"
does: --client and --kind describe the client, and the names of objects follow what decided.
With --expect, the exit status is 1 unless all RPCs go to the clusters that it names, and
each of these gets some. What a running client holds "dynxds explain HOST:PORT" explains.`

func newExplain() *cobra.Command {
	var (
		f      flags
		client cmdline.Client
		rpc    cmdline.RPC
		format string
	)
	cmd := &cobra.Command{
		Use:     "explain TARGET METHOD",
		Short:   "Say where an RPC goes, and why",
		Long:    explainHelp,
		Example: "  dynxds-kubernetes explain xds:///backend.shop /shop.Backend/Get --client namespace=shop,service=frontend.shop -H 'version: two'",
		Args:    cmdline.Arguments("two arguments", 2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			rpc.Request.Target, rpc.Request.Method = args[0], args[1]
			if err := rpc.Check(); err != nil {
				return err
			}
			content, where, err := f.read(cmd)
			if err != nil {
				return err
			}
			view := client.View()
			view.Content, view.Dir = content, where
			e, err := site.ExplainRPC(view, rpc.Request)
			if err != nil {
				return err
			}
			if err := cmdline.Print(cmd.OutOrStdout(), format, e); err != nil {
				return err
			}
			return rpc.Judge(e)
		},
	}
	f.clusterFlags(cmd)
	client.Add(cmd)
	rpc.Add(cmd)
	cmdline.TextOrData(cmd, &format)
	return cmd
}

// read reads the cluster once. where names it.
func (f *flags) read(cmd *cobra.Command) (content *folder.Content, where string, err error) {
	log := cmdline.NewLog(cmd.ErrOrStderr(), "text", "warn")
	clients, where, err := f.clients()
	if err != nil {
		return nil, "", err
	}
	source, err := f.open(cmd.Context(), cluster.Options{Clients: clients, Log: log})
	if err != nil {
		return nil, "", err
	}
	defer source.Close()
	content, err = source.Read(cmd.Context())
	return content, where, err
}

// serviceNamed returns the name of the service that clients of a namespace dial by a name, or the name itself.
func serviceNamed(content *folder.Content, name, namespace string) string {
	for _, s := range content.Services {
		if slices.ContainsFunc(s.Aliases, func(a meshroute.Alias) bool {
			return a.Name == name && (a.Namespace == "" || a.Namespace == namespace)
		}) {
			return s.Name
		}
	}
	return name
}
