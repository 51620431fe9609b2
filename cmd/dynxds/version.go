package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// versionText has the versions of the command and of its parts.
func versionText() string {
	return fmt.Sprintf("dynxds %s, gRPC-Go %s, %s %s/%s", bootstrap.UserAgentVersion, grpc.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of dynxds, gRPC and Go",
		Args:  noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}
