package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/bootstrapfile"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

const bootstrapHelp = `Prints the bootstrap with which a client finds a control plane. Write it to a
file, and set GRPC_XDS_BOOTSTRAP to its path:

  dynxds bootstrap --server localhost:18000 --id frontend-1 --cluster frontend > bootstrap.json
  GRPC_XDS_BOOTSTRAP=bootstrap.json ./frontend

With --authority, which has to be that of "dynxds serve", the client dials
xds://AUTHORITY/service, and gets dynamic parameter constraints by DPDS.

--ca, --cert and --key are for the connection to the control plane; --mesh-ca,
--mesh-cert and --mesh-key for those between services whose documents have tls.
With --mesh-cert the bootstrap is also good for such a service's xDS server.

With --kubernetes it is that of a client of dynxds-kubernetes in a pod: the server, the
token and its --ca are those of deploy/kubernetes/example, unless flags or the
environment (DYNXDS_SERVER, DYNXDS_TOKEN_FILE, DYNXDS_CA_FILE) name others, and
POD_NAME, POD_NAMESPACE and NODE_NAME say who the client is. An init container runs

  dynxds bootstrap --kubernetes --file /xds/bootstrap.json`

// tlsNote is a warning about clients without credentials of type tls, which do not start.
const tlsNote = "note: clients of dynxds and gRPC-Go know the channel_creds \"tls\"; " +
	"grpc-js and C-core 1.51 know only insecure and google_default, and find no credentials in this file"

func newBootstrap() *cobra.Command {
	opts := bootstrapfile.Options{ServerTemplate: meshroute.ServerListenerTemplate}
	var (
		pod  bool
		file string
	)
	cmd := &cobra.Command{
		Use:   "bootstrap {--server TARGET | --kubernetes}",
		Short: "Print a bootstrap for clients of a control plane",
		Long:  bootstrapHelp,
		Args:  cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pod {
				if err := opts.InPod(os.Getenv); err != nil {
					return err
				}
			}
			text, err := opts.JSON()
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			if opts.TLS {
				fmt.Fprintln(cmd.ErrOrStderr(), tlsNote)
			}
			if file != "" {
				return os.WriteFile(file, text, 0o644)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&pod, "kubernetes", false, "complete the bootstrap for a client in a pod")
	cmdline.File(cmd, &file, "file", "write to this file")
	f.StringArrayVar(&opts.Servers, "server", nil, "gRPC target of the control plane; repeat it for fallbacks")
	f.StringSliceVar(&opts.Features, "feature", nil, "server features, such as delta")
	f.BoolVar(&opts.TLS, "tls", false, "use TLS")
	cmdline.File(cmd, &opts.CA, "ca", "PEM file with the authorities to trust, for TLS (default the system's)")
	cmdline.File(cmd, &opts.Cert, "cert", "PEM file with the client's certificate, for TLS")
	cmdline.File(cmd, &opts.Key, "key", "PEM file with the key of the certificate")
	cmdline.File(cmd, &opts.Token, "token-file", "file with a token that requests to the control plane carry, for TLS")
	cmdline.File(cmd, &opts.MeshCA, "mesh-ca", "PEM file with the authorities that certify services with tls: certificate provider \""+bootstrapfile.MeshProvider+"\"")
	cmdline.File(cmd, &opts.MeshCert, "mesh-cert", "PEM file with the certificate that the client presents to services with mutual tls")
	cmdline.File(cmd, &opts.MeshKey, "mesh-key", "PEM file with the key of that certificate")
	f.StringVar(&opts.NodeID, "id", "", "id of the node: this client")
	f.StringVar(&opts.NodeCluster, "cluster", "", "cluster of the node: the service that the client is part of")
	f.StringVar(&opts.Locality, "locality", "", "region/zone/sub-zone of the client")
	cmdline.Pairs(cmd, &opts.Metadata, "metadata", "the node's metadata: the tags of the client")
	f.StringSliceVar(&opts.Constrained, "constrain", nil, "keys of the metadata that become constraints")
	f.StringVar(&opts.Authority, "authority", "", "authority whose resources the client subscribes to, with constraints by DPDS")
	cmdline.Text(cmd, &opts.DNSFallback, "dns-fallback", "never, not_found, timeout or unavailable", "when to resolve targets by DNS: never, not_found, timeout or unavailable (default not_found)")
	cmdline.Complete(cmd, "dns-fallback", cmdline.Values("never", "not_found", "timeout", "unavailable"))
	return cmd
}
