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

// A replica is in the list while it runs; one that crashed leaves it when its lease expires. An entry that is none does not hide others.
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
	first := store.Replica{ID: "one", Admin: "host:1", Address: "host:2", Started: time.Now().UTC().Truncate(time.Second)}
	running, stop := announce(t, s, first)
	next("PUT /mesh/replicas/one")
	crashed, _ := announce(t, crashing, store.Replica{ID: "two"})
	next("PUT /mesh/replicas/two")
	c.put(prefix+"/replicas/odd", "nonsense")
	next("PUT /mesh/replicas/odd")
	list, err := s.Replicas(ctx)
	xdstest.NoError(t, err)
	if len(list) != 3 || list[0].ID != "odd" || list[0].Fault == nil {
		t.Fatalf("got replicas %+v, want the odd one with a fault, and two more", list)
	}
	xdstest.Equal(t, "replicas", []store.Replica{first, {ID: "two"}}, list[1:])

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
	ca, files := testca.New(t), testca.NewFiles(t)
	files.Issue(ca)
	c := newClusterWith(t, 1, ca.ClientConfig(true),
		transport.TLSInfo{CertFile: files.Cert, KeyFile: files.Key, TrustedCAFile: files.CA, ClientCertAuth: true})
	c.put(key("a.yaml"), "old")
	login, _ := c.withLogin(t)
	password, wrong, later := login[len(login)-1], filepath.Join(t.TempDir(), "wrong"), testca.NewFiles(t)
	xdstest.NoError(t, os.WriteFile(wrong, []byte("guess"), 0o600))
	later.Issue(testca.New(t))
	for _, test := range []struct {
		name    string
		options store.Options
		wrong   string // what the error says; empty: there is none
	}{
		{"all of it", store.Options{URL: "etcds", CA: files.CA, Cert: files.Cert, Key: files.Key, User: "replica", PasswordFile: password}, ""},
		{"TLS by its authorities", store.Options{URL: "etcd", CA: files.CA, Cert: files.Cert, Key: files.Key, User: "replica", PasswordFile: password}, ""},
		{"an authority that comes later", store.Options{URL: "etcd", CA: later.CA, Cert: files.Cert, Key: files.Key, Timeout: time.Second}, "permission denied"},
		{"no TLS", store.Options{URL: "etcd", User: "replica", PasswordFile: password, Timeout: time.Second}, "is it hung? Or, if etcd speaks TLS, use etcds://"},
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
			announce(t, s, store.Replica{}) // whose error does not disturb Load
			snapshot, err := s.Load(testutils.Context(t))
			if o.CA == later.CA {
				cmdtest.ErrorHas(t, "Load", err, "unknown authority")
				later.Issue(ca)
				_, _ = s.Load(testutils.Context(t)) // whose error has the file read
				snapshot, err = s.Load(testutils.Context(t))
			}
			if test.wrong != "" {
				cmdtest.ErrorHas(t, "Load", err, test.wrong)
				return
			}
			xdstest.NoError(t, err)
			xdstest.Equal(t, "documents", 1, len(snapshot.Documents))
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
