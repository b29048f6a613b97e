// Command argocd is Argo CD's application controller, or its repo-server where its first argument says so.
package main

import (
	"os"

	"github.com/spf13/cobra"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
)

func main() {
	command := &cobra.Command{Use: "argocd", SilenceUsage: true}
	command.AddCommand(controller.NewCommand(), reposerver.NewCommand())
	if command.Execute() != nil {
		os.Exit(1)
	}
}
