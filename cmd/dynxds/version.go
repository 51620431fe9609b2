package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of dynxds, gRPC and Go",
		Args:  noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "dynxds %s, gRPC-Go %s, %s %s/%s\n",
				bootstrap.UserAgentVersion, grpc.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
