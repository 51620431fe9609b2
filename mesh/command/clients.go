package command

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/internal/store"
)

const clientsHelp = `Asks replicas of a control plane, or relays, that run with --admin, which clients
they have: their nodes and addresses, since when, what they subscribe to, the
version of each type that they have accepted, whether they still have to answer,
and what they have rejected, in their own words. The list also has the errors that
clients were sent in place of resources. With --store it asks all replicas that
serve from that store.

A replica that does not answer is named, the others are shown, and the exit status
is 3.`

func newClients() *cobra.Command {
	var (
		from             replicaFlags
		format           string
		nacks, resources bool
		timeout          time.Duration
	)
	cmd := &cobra.Command{
		Use:     "clients [--admin HOST:PORT,... | --store URL]",
		Short:   "Show what the clients of running control planes have accepted and rejected",
		Long:    clientsHelp,
		Example: "  dynxds clients\n  dynxds clients --nacks --admin 10.0.0.1:18002,10.0.0.2:18002",
		Args:    cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			replicas, err := from.replicas(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			fleet := clients.Ask(cmd.Context(), replicas, nacks, timeout)
			fleet.Resources = resources
			return errors.Join(cmdline.Print(cmd.OutOrStdout(), format, fleet), fleet.Err())
		},
	}
	from.add(cmd)
	cmdline.Timeout(cmd, &timeout, "how long to wait for the answer of a replica")
	cmdline.TextOrData(cmd, &format)
	f := cmd.Flags()
	f.BoolVar(&nacks, "nacks", false, "only clients that reject something, and what they reject")
	f.BoolVar(&resources, "resources", false, "also the resources that clients were sent (20 of a type), with the versions that \"dynxds status\" shows")
	return cmd
}

// replicaFlags say which replicas of a control plane to ask.
type replicaFlags struct {
	addresses []string
	stored    store.Options
}

func (r *replicaFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&r.addresses, "admin", []string{serve.DefaultAdmin}, "where the replicas have their admin pages; those of a relay are on "+serve.DefaultRelayAdmin)
	storeFlags(cmd, &r.stored)
	cmd.MarkFlagsMutuallyExclusive("admin", "store")
}

// replicas returns those of the flags, or those that serve from the store.
func (r *replicaFlags) replicas(ctx context.Context, cmd *cobra.Command) (replicas []clients.Replica, err error) {
	if len(r.addresses) == 0 {
		return nil, exit.Usagef("--admin is empty: want HOST:PORT")
	}
	for _, address := range r.addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, exit.Usagef("--admin %q: want HOST:PORT", address)
		}
	}
	if r.stored.URL == "" || cmd.Flags().Changed("admin") {
		for _, address := range r.addresses {
			replicas = append(replicas, clients.Replica{Admin: address})
		}
		return replicas, nil
	}
	s, err := store.Open(r.stored)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	list, err := s.Replicas(ctx)
	for _, of := range list {
		replicas = append(replicas, clients.Replica{Admin: of.Admin, ID: of.ID, Fault: of.Fault})
	}
	return replicas, err
}

// storeEnv is the environment variable with the default of --store.
const storeEnv = "DYNXDS_STORE"

// storeFlags adds the flags of a store in etcd.
func storeFlags(cmd *cobra.Command, opts *store.Options) {
	f := cmd.Flags()
	f.StringVar(&opts.URL, "store", os.Getenv(storeEnv), "etcd://HOST:2379,HOST2:2379/PREFIX, or etcds:// for TLS; by default "+storeEnv+" of the environment")
	f.Lookup("store").DefValue = "" // help need not show what the environment has
	cmdline.File(cmd, &opts.CA, "store-ca", "PEM file with the authorities of etcd's certificates; by default those of the system")
	cmdline.File(cmd, &opts.Cert, "store-cert", "PEM file with the certificate for etcd, which is read again for each connection")
	cmdline.File(cmd, &opts.Key, "store-key", "PEM file with the key of that certificate")
	f.StringVar(&opts.User, "store-user", "", "user of etcd's authentication")
	cmdline.File(cmd, &opts.PasswordFile, "store-password-file", "file with that user's password; by default it is "+store.PasswordEnv+" of the environment")
	cmdline.Period(cmd, &opts.Timeout, "store-timeout", store.DefaultTimeout, "how long a request to etcd may take")
}
