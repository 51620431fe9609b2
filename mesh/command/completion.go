package command

import (
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/site"
)

// oneFolder completes a single argument DIR.
func oneFolder(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// services completes a flag with the services of the folder that is the first argument.
func services(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 || !isFolder(args[0]) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return site.Services(args[0]), cobra.ShellCompDirectiveNoFileComp
}
