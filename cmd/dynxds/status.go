package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/status"
)

const statusHelp = `Asks the Client Status Discovery Service (csds.Register) of a running process which
resources its xDS clients hold, and prints, for each, its state, its version, the
control plane's or the client's error, and the populated fields that dynxds does
not act on. The connection is not encrypted.`

func newStatus() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "status HOST:PORT",
		Short:   "Show what the xDS clients of a process hold, and which fields they ignore",
		Long:    statusHelp,
		Example: "  dynxds status localhost:50051",
		Args:    oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return status.Show(ctx, args[0], cmd.OutOrStdout())
		},
	}
	timeoutFlag(cmd, &timeout, waitForAnswer)
	return cmd
}

// waitForAnswer is the usage of --timeout.
const waitForAnswer = "how long to wait for the answer of the process"
