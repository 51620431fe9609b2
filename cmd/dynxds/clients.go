package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/clients"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
)

const clientsHelp = `Asks replicas of a control plane, or relays, that run with --admin, which clients
they have: their nodes and addresses, since when, what they subscribe to, the
version of each type that they have accepted, whether they are behind with an
answer, and what they have rejected, in their own words. The list has the errors
too that clients were sent in place of resources.

A replica that does not answer is named, the others are shown, and the exit status
is 1.`

func newClients() *cobra.Command {
	var (
		addresses     []string
		asJSON, nacks bool
	)
	cmd := &cobra.Command{
		Use:     "clients [--admin HOST:PORT[,HOST:PORT...]]",
		Short:   "Show what the clients of running control planes have accepted and rejected",
		Long:    clientsHelp,
		Example: "  dynxds clients\n  dynxds clients --nacks --admin 10.0.0.1:18002,10.0.0.2:18002",
		Args:    noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(addresses) == 0 {
				return errors.New("--admin names no replica")
			}
			fleet := clients.Ask(cmd.Context(), addresses, nacks)
			write := fleet.Print
			if asJSON {
				write = fleet.PrintJSON
			}
			return errors.Join(write(cmd.OutOrStdout()), fleet.Err())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&addresses, "admin", []string{serve.DefaultAdmin}, "where the replicas have their admin pages")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.BoolVar(&nacks, "nacks", false, "only clients that refuse something, and what they refuse")
	return cmd
}
