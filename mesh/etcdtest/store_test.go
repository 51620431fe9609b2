package etcdtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/store"
	"github.com/dynxds/dynxds/testutils"
)

// A replica is in the list while it runs; one that crashed leaves it when its lease expires.
func TestReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	ctx := testutils.Context(t)
	watch := c.client.Watch(ctx, prefix+"/replicas/", clientv3.WithPrefix())
	next := func(want string) {
		t.Helper()
		select {
		case r := <-watch:
			if len(r.Events) != 1 || r.Events[0].Type.String()+" "+string(r.Events[0].Kv.Key) != want {
				t.Fatalf("got %v, want %s", r.Events, want)
			}
		case <-ctx.Done():
			t.Fatal("no event of the replicas, want " + want)
		}
	}
	s, crashing := c.open(prefix, 0), c.open(prefix, 0)
	started := time.Now().UTC().Truncate(time.Second)
	first := store.Replica{ID: "one", Admin: "host:1", Address: "host:2", Started: started}
	running, stop := announce(t, s, first)
	next("PUT /mesh/replicas/one")
	crashed, _ := announce(t, crashing, store.Replica{ID: "two"})
	next("PUT /mesh/replicas/two")
	list, err := s.Replicas(ctx)
	xdstest.NoError(t, err)
	xdstest.Equal(t, "replicas", []store.Replica{first, {ID: "two"}}, list)

	// It can neither keep its lease nor give it back.
	crashing.Close()
	cmdtest.ErrorHas(t, "the replica that lost its store", <-crashed, "two")
	next("DELETE /mesh/replicas/two")
	stop()
	next("DELETE /mesh/replicas/one")
	xdstest.NoError(t, <-running)
}

// TLS, certificates of clients, and users with passwords.
func TestAccess(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	files := testca.NewFiles(t)
	files.Issue(ca)
	c := newClusterWith(t, 1, ca.ClientConfig(true),
		transport.TLSInfo{CertFile: files.Cert, KeyFile: files.Key, TrustedCAFile: files.CA, ClientCertAuth: true})
	ctx := testutils.Context(t)
	c.put(key("a.yaml"), "old")
	for _, step := range []func() error{
		func() error { _, err := c.client.RoleAdd(ctx, "mesh"); return err },
		func() error {
			_, err := c.client.RoleGrantPermission(ctx, "mesh", prefix+"/", clientv3.GetPrefixRangeEnd(prefix+"/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := c.client.UserAdd(ctx, "replica", "secret"); return err },
		func() error { _, err := c.client.UserGrantRole(ctx, "replica", "mesh"); return err },
		func() error { _, err := c.client.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := c.client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.client.AuthEnable(ctx); return err },
	} {
		xdstest.NoError(t, step())
	}
	password, wrong := filepath.Join(t.TempDir(), "password"), filepath.Join(t.TempDir(), "wrong")
	xdstest.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	xdstest.NoError(t, os.WriteFile(wrong, []byte("guess"), 0o600))
	for _, test := range []struct {
		name    string
		options store.Options
		wrong   string // what the error says; empty: there is none
	}{
		{"all of it", store.Options{URL: "etcds", CA: files.CA, Cert: files.Cert, Key: files.Key, User: "replica", PasswordFile: password}, ""},
		{"TLS by its authorities", store.Options{URL: "etcd", CA: files.CA, Cert: files.Cert, Key: files.Key, User: "replica", PasswordFile: password}, ""},
		{"no TLS", store.Options{URL: "etcd", User: "replica", PasswordFile: password, Timeout: time.Second}, "if etcd speaks TLS, use etcds://"},
		{"no certificate", store.Options{URL: "etcds", CA: files.CA, User: "replica", PasswordFile: password}, "add --store-cert and --store-key"},
		{"no authority", store.Options{URL: "etcds", Cert: files.Cert, Key: files.Key, User: "replica", PasswordFile: password}, "unknown authority"},
		{"a wrong password", store.Options{URL: "etcds", CA: files.CA, Cert: files.Cert, Key: files.Key, User: "replica", PasswordFile: wrong}, "invalid user ID or password"},
		{"no user", store.Options{URL: "etcds", CA: files.CA, Cert: files.Cert, Key: files.Key}, "permission denied"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := test.options
			o.URL += "://" + c.addresses()[0] + prefix
			s, err := store.Open(o)
			xdstest.NoError(t, err)
			t.Cleanup(s.Close)
			snapshot, err := s.Load(testutils.Context(t))
			if test.wrong != "" {
				cmdtest.ErrorHas(t, "Load", err, test.wrong)
				return
			}
			xdstest.NoError(t, err)
			if len(snapshot.Documents) != 1 {
				t.Errorf("got documents %v, want one", snapshot.Documents)
			}
		})
	}
}

// announce announces a replica until stop is called, or the test ends.
func announce(t *testing.T, s *store.Store, r store.Replica) (ended <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	result := make(chan error, 1)
	go func() { result <- s.Announce(ctx, r) }()
	return result, cancel
}

// An entry among the replicas that is none does not hide the others.
func TestForeignReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.put(prefix+"/replicas/a", "nonsense")
	c.put(prefix+"/replicas/b", `{"id": "b"}`)
	list, err := c.open(prefix, 0).Replicas(testutils.Context(t))
	xdstest.NoError(t, err)
	if len(list) != 2 || list[0].ID != "a" || list[0].Fault == nil || list[1].ID != "b" || list[1].Fault != nil {
		t.Errorf("got replicas %+v, want a with a fault, and b", list)
	}
}
