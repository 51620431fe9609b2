// Package kubetest runs a control plane of Kubernetes for tests: kube-apiserver and etcd, built from source. There are
// no controllers and no kubelet: tests write EndpointSlices and Pods themselves.
package kubetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dynxds/dynxds/internal/loopback"
)

// Audience is what the API server issues tokens for unless a request says otherwise.
const Audience = "https://kubernetes.default.svc"

const adminToken = "test-admin"

// Cluster is an API server with an etcd. Start starts one; Stop ends it.
type Cluster struct {
	binaries      *Binaries
	dir           string
	etcdAt, apiAt *loopback.Address // the cluster's while its processes do not run, too
	etcd, api     *process
}

// Start starts a cluster, and returns when it is ready.
func Start(b *Binaries) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "dynxds-kubetest-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{binaries: b, dir: dir}
	for _, step := range []func() error{c.prepare, c.StartEtcd, c.StartAPIServer} {
		if err := step(); err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) prepare() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(c.path("sa.key"), private, 0o600); err != nil {
		return err
	}
	users := fmt.Sprintf("%s,admin,admin,\"system:masters\"\n", adminToken)
	if err := os.WriteFile(c.path("tokens.csv"), []byte(users), 0o600); err != nil {
		return err
	}
	if c.etcdAt, err = loopback.Reserve(); err != nil {
		return err
	}
	c.apiAt, err = loopback.Reserve()
	return err
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// StartEtcd starts etcd, or starts it again with the data that it had.
func (c *Cluster) StartEtcd() (err error) {
	c.etcd, err = start(c.path("etcd.log"), c.binaries.etcd, "-listen", c.etcdAt.String(), "-data", c.path("etcd"))
	if err != nil {
		return err
	}
	return c.etcd.await("etcd", func() bool {
		conn, err := net.Dial("tcp", c.etcdAt.String())
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// StartAPIServer starts the API server, or starts it again at the same address.
func (c *Cluster) StartAPIServer() (err error) {
	_, port, _ := net.SplitHostPort(c.apiAt.String())
	c.api, err = start(c.path("apiserver.log"), c.binaries.apiServer,
		"--etcd-servers=http://"+c.etcdAt.String(),
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+c.path("certs"),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16,fd00:96::/108",
		"--service-account-issuer="+Audience, "--service-account-key-file="+c.path("sa.key"), "--service-account-signing-key-file="+c.path("sa.key"),
		"--authorization-mode=RBAC", "--token-auth-file="+c.path("tokens.csv"),
		// Without a controller no namespace has the account "default", which the plugin demands.
		"--disable-admission-plugins=ServiceAccount",
		"--profiling=false", "--shutdown-delay-duration=0s",
	)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	return c.api.await("the API server", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil
	})
}

// KillAPIServer and KillEtcd end a process as a crash does.
func (c *Cluster) KillAPIServer() { c.api.kill() }

// KillEtcd ends etcd.
func (c *Cluster) KillEtcd() { c.etcd.kill() }

// Config is that of an administrator. It is without limits on requests, as tests are in a hurry.
func (c *Cluster) Config() *rest.Config {
	return &rest.Config{
		Host: c.URL(), BearerToken: adminToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
}

// Kubeconfig writes a kubeconfig for the user with a token.
func (c *Cluster) Kubeconfig(path, token string) error {
	return c.KubeconfigOf(path, token, c.URL())
}

// KubeconfigOf writes a kubeconfig that has another URL of the API server.
func (c *Cluster) KubeconfigOf(path, token, url string) error {
	return os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: test, user: {token: %q}}]
`, url, token), 0o600)
}

// URL is that of the API server.
func (c *Cluster) URL() string { return "https://" + c.apiAt.String() }

// AdminToken is the token of the administrator.
func (c *Cluster) AdminToken() string { return adminToken }

// Stop ends the cluster, and deletes what it has.
func (c *Cluster) Stop() {
	c.api.kill()
	c.etcd.kill()
	for _, address := range []*loopback.Address{c.etcdAt, c.apiAt} {
		if address != nil { // nil: Start has failed before
			address.Release()
		}
	}
	os.RemoveAll(c.dir)
}

// process is a process that was started. nil is none.
type process struct {
	command *exec.Cmd
	log     string
	ended   chan struct{}
	killed  sync.Once
}

func start(log, program string, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := &process{command: exec.Command(program, args...), log: log, ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = file, file
	p.command.SysProcAttr = endWithParent()
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.command.Wait()
	}()
	return p, nil
}

// startTime bounds how long a program may take to start: the API server takes 8 s on an idle machine.
const startTime = 3 * time.Minute

// await waits until a program is ready.
func (p *process) await(what string, ready func() bool) error {
	deadline, tick := time.After(startTime), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended:\n%s", what, p.lastLines())
		case <-deadline:
			return fmt.Errorf("%s is not ready after %s:\n%s", what, startTime, p.lastLines())
		case <-tick.C:
		}
	}
	return nil
}

func (p *process) lastLines() []byte {
	text, _ := os.ReadFile(p.log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], []byte("\n"))
}

func (p *process) kill() {
	if p == nil {
		return
	}
	p.killed.Do(func() { _ = p.command.Process.Kill() })
	<-p.ended
}
