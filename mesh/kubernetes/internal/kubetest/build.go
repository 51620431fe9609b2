package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Binaries are the paths of programs.
type Binaries struct{ apiServer, etcd string }

// Build builds the programs, unless Go's cache has them: kube-apiserver takes minutes.
func Build() (*Binaries, error) {
	etcd, err := build("../etcdtest", "etcd")
	if err != nil {
		return nil, err
	}
	apiServer, err := build("apiserver", "apiserver")
	return &Binaries{apiServer, etcd}, err
}

// Kubectl builds kubectl, likewise, and returns its path.
func Kubectl() (path string, err error) { return build("kubectl", "kubectl") }

// build returns the path of a tool of a module, whose folder is relative to that of the package whose tests need a cluster.
func build(module, tool string) (path string, err error) {
	command := exec.Command("go", "tool", "-n", tool)
	command.Dir, command.Stderr = module, os.Stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("building %s: %w", tool, err)
	}
	return strings.TrimSpace(string(output)), nil
}
