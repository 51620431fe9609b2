package kubetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Binaries are the paths of programs.
type Binaries struct{ apiServer, etcd string }

// sources are the modules that the programs are built from, relative to the folder of the package whose tests need a cluster.
var sources = map[string]string{"kube-apiserver": "apiserver", "etcd": "../etcdtest", "kubectl": "kubectl"}

// Build builds the programs, unless the user's cache directory has them. What it does that takes long it says to log.
func Build(log io.Writer) (*Binaries, error) {
	etcd, err := build("etcd", "./etcd", log)
	if err != nil {
		return nil, err
	}
	apiServer, err := build("kube-apiserver", ".", log)
	if err != nil {
		return nil, err
	}
	return &Binaries{apiServer: apiServer, etcd: etcd}, nil
}

// Kubectl builds kubectl, likewise, and returns its path.
func Kubectl(log io.Writer) (path string, err error) { return build("kubectl", ".", log) }

// build returns the path of a program. Its name has a digest of the versions that it is built from.
func build(name, pkg string, log io.Writer) (string, error) {
	module := sources[name]
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "dynxds-kubernetes-test")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	digest := sha256.New()
	fmt.Fprintln(digest, runtime.Version(), runtime.GOARCH)
	for _, file := range []string{"go.mod", "go.sum", filepath.Join(pkg, "main.go")} {
		text, err := os.ReadFile(filepath.Join(module, file))
		if err != nil {
			return "", err
		}
		digest.Write(text)
	}
	path := filepath.Join(cache, name+"-"+hex.EncodeToString(digest.Sum(nil)[:6]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fmt.Fprintf(log, "kubetest: building %s, which takes minutes; it is kept in %s\n", name, cache)
	// Another process may build it too.
	next := fmt.Sprintf("%s.%d", path, os.Getpid())
	command := exec.Command("go", "build", "-trimpath", "-o", next, pkg)
	command.Dir = module
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, output)
	}
	return path, os.Rename(next, path)
}
