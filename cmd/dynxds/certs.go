package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/certs"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/exit"
)

const certsHelp = `Makes certificates for development and tests: DIR/NAME.pem with its key
DIR/NAME-key.pem, for each NAME. They are valid for a year, for clients and
servers, and for the SPIFFE ID spiffe://TRUST-DOMAIN/NAME. The authority
that signs them is DIR/ca.pem; if there is none, it is made.

Keys are plain files: use your own authority in production.`

func newCerts() *cobra.Command {
	domain := "mesh"
	cmd := &cobra.Command{
		Use:     "certs DIR NAME...",
		Short:   "Make certificates for development: an authority and what it signs",
		Long:    certsHelp,
		Example: "  dynxds certs certs frontend backend",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("want a folder and at least one name: %s", cmd.UseLine())
			}
			return nil
		},
		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, names := args[0], args[1:]
			for _, name := range names {
				if err := certs.CheckFile(name); err != nil {
					return exit.With(exit.Usage, err)
				}
				if _, err := certs.ID(domain, name); err != nil {
					return exit.With(exit.Usage, err)
				}
			}
			authority, err := certs.Open(dir)
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := authority.Write(dir, domain, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&domain, "trust-domain", domain, "trust domain of the SPIFFE IDs")
	return cmd
}
