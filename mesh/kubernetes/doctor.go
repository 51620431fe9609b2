package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/doctor"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/checkup"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
)

const doctorHelp = `Follows the way from the API server to what clients get, and says at which step it ends,
and what to do: the API server, permissions, CRDs, the token of a client, and of a Service
its ports, EndpointSlices, routes with their conditions, and what would be served for it.

The permissions are those of the kubeconfig, in a pod those of its account. With --as they
are those of another, such as system:serviceaccount:dynxds-system:dynxds.

The exit status is 1 if a check fails.`

func newDoctor() *cobra.Command {
	var (
		f             flags
		token, format string
	)
	cmd := &cobra.Command{
		Use:               "doctor [SERVICE[.NAMESPACE]]",
		Short:             "Find the step at which a Service is not served, and say what to do",
		Long:              doctorHelp,
		Example:           "  dynxds-kubernetes doctor backend.shop\n  dynxds-kubernetes doctor --as system:serviceaccount:dynxds-system:dynxds",
		Args:              cmdline.Arguments("at most one argument", 0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := checkup.Options{LeaseNamespace: f.leaseNamespace, Namespaces: f.namespaces, Audience: f.audience}
			if token != "" {
				text, err := os.ReadFile(token)
				if err != nil {
					return err
				}
				opts.Token = strings.TrimSpace(string(text))
			}
			report, err := f.examine(cmd.Context(), opts, strings.Join(args, ""))
			if err != nil {
				return err
			}
			err = cmdline.Print(cmd.OutOrStdout(), format, report)
			if err == nil && report.Failed() {
				err = &exit.Error{Code: exit.No}
			}
			return err
		},
	}
	f.clusterFlags(cmd)
	set := cmd.Flags()
	set.StringVar(&f.as, "as", "", "the user whose permissions count; by default that of the kubeconfig")
	cmdline.File(cmd, &token, "token", "file with the token of a client, which is reviewed as the control plane does")
	set.StringVar(&f.audience, "audience", "dynxds", "the audience that the token has to have")
	set.StringVar(&f.leaseNamespace, "lease-namespace", "dynxds-system", "namespace of the control plane's Lease")
	cmdline.TextOrData(cmd, &format)
	return cmd
}

// examine examines the API server, and then a Service if one is named.
func (f *flags) examine(ctx context.Context, opts checkup.Options, service string) (*doctor.Report, error) {
	report := &doctor.Report{Of: cmp.Or(service, "API server")}
	var err error
	if opts.Clients, opts.Host, err = f.clients(); err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, f.startTimeout)
	defer cancel()
	if !checkup.APIServer(asking, report, opts) || service == "" {
		return report, nil
	}
	source, err := f.open(ctx, cluster.Options{Clients: opts.Clients, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer source.Close()
	content, err := source.Read(ctx)
	if err != nil {
		return nil, err
	}
	validation, err := site.ValidateContent(content, "")
	if err != nil {
		return nil, err
	}
	namespace, name := f.serviceOf(service)
	checkup.Service(report, namespace+"/"+name, source.ServiceState(namespace, name), validation.Reports)
	return report, nil
}

// serviceOf returns the Service of a name by which clients dial, that of the kubeconfig's namespace if it has none.
func (f *flags) serviceOf(target string) (namespace, name string) {
	host, _, _ := strings.Cut(strings.TrimPrefix(target, "xds:///"), ":")
	host = strings.TrimSuffix(host, ".svc."+strings.Trim(f.domain, "."))
	name, namespace, _ = strings.Cut(host, ".")
	if namespace == "" {
		namespace, _, _ = f.config().Namespace() // "default" if there is none
	}
	return namespace, name
}
