package etcdtest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// world is a store with replicas, to which a seed does something at random.
type world struct {
	*testing.T
	*cluster
	random   *rand.Rand
	store    *store.Store
	replicas []*inProcess
	// documents are those of the store, and good the services of all that were ever good together.
	documents map[string]string
	good      map[string]bool
	// number makes each document another one.
	number int
	done   []string
}

// inProcess is a replica in this process, with a cable of its own to etcd.
type inProcess struct {
	cable    *cable
	lastGood string
	log      *xdstest.Log
	// address is empty while it does not run.
	address string
	stop    func()
}

// start starts a replica. It returns the error of one that ends at once.
func (w *world) start(r *inProcess) error {
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	r.log = new(xdstest.Log)
	opts := site.Options{
		Store: &site.Stored{
			Options:  store.Options{URL: "etcd://" + r.cable.address + prefix, Timeout: time.Second},
			LastGood: r.lastGood, Pulse: 100 * time.Millisecond,
		},
		WithdrawalDelay: 100 * time.Millisecond,
		Serve:           serve.Options{Listen: "127.0.0.1:0", Grace: time.Nanosecond, Log: slog.New(slog.NewTextHandler(r.log, nil))},
		Ready:           func(a net.Addr) { ready <- a },
	}
	go func() { ended <- site.Run(ctx, opts) }()
	select {
	case a := <-ready:
		r.address = a.String()
		r.stop = func() {
			cancel()
			<-ended
			r.address = ""
		}
		return nil
	case err := <-ended:
		cancel()
		return err
	}
}

// serves returns the services that a replica serves.
func (w *world) serves(r *inProcess) (string, error) {
	conn, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
	defer cancel()
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return "", err
	}
	request := &discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "observer"}, TypeUrl: typeurl.Cluster}
	if err := stream.Send(request); err != nil {
		return "", err
	}
	response, err := stream.Recv()
	if err != nil {
		return "", err
	}
	var names []string
	for _, a := range response.GetResources() {
		var c clusterpb.Cluster
		if err := a.UnmarshalTo(&c); err != nil {
			return "", err
		}
		names = append(names, c.GetName())
	}
	slices.Sort(names)
	return strings.Join(names, " "), nil
}

// services returns those of the store's documents, and whether these are good together.
func (w *world) services() (names string, good bool) {
	var files []*folder.File
	for _, name := range slices.Sorted(maps.Keys(w.documents)) {
		files = append(files, folder.Parse(name, []byte(w.documents[name])))
	}
	content, err := folder.NewJoiner("").Join(files)
	if err != nil || content.Documents() == 0 || site.Servable(content) != nil {
		return "", false
	}
	var list []string
	for _, s := range content.Services {
		list = append(list, s.Name)
	}
	slices.Sort(list)
	return strings.Join(list, " "), true
}

// write changes documents in one transaction; an empty text deletes one.
func (w *world) write(texts map[string]string) {
	w.Helper()
	var ops []clientv3.Op
	for name, text := range texts {
		if text == "" {
			ops = append(ops, clientv3.OpDelete(key(name)))
			delete(w.documents, name)
		} else {
			ops = append(ops, clientv3.OpPut(key(name), text))
			w.documents[name] = text
		}
	}
	_, err := w.client.Txn(testutils.Context(w)).Then(ops...).Commit()
	xdstest.NoError(w, err)
	if names, good := w.services(); good {
		w.good[names] = true
	}
}

// name returns one of five documents.
func (w *world) name() string { return fmt.Sprintf("%c.yaml", 'a'+w.random.IntN(5)) }

func (w *world) fresh(name string) string {
	w.number++
	return service(fmt.Sprintf("%s-%d", strings.TrimSuffix(name, ".yaml"), w.number), "10.0.0.1:80")
}

// step does something at random, and says what.
func (w *world) step() string {
	w.Helper()
	r := w.replicas[w.random.IntN(len(w.replicas))]
	switch w.random.IntN(11) {
	case 0, 1:
		name := w.name()
		w.write(map[string]string{name: w.fresh(name)})
		return "put " + name
	case 2, 3:
		name := w.name()
		w.write(map[string]string{name: "kind: Servce\n"})
		return "put a faulty " + name
	case 4:
		// Two that contradict each other.
		w.number++
		text := service(fmt.Sprintf("twice-%d", w.number), "10.0.0.1:80")
		w.write(map[string]string{"a.yaml": text, "b.yaml": text})
		return "put two of one service"
	case 5:
		name := w.name()
		w.write(map[string]string{name: ""})
		return "delete " + name
	case 6:
		all := make(map[string]string)
		for name := range w.documents {
			all[name] = ""
		}
		if len(all) > 0 {
			w.write(all)
		}
		return "delete all"
	case 7:
		return w.apply()
	case 8:
		now, err := w.client.Get(testutils.Context(w), prefix)
		xdstest.NoError(w, err)
		if _, err := w.client.Compact(testutils.Context(w), now.Header.Revision); err != nil && !strings.Contains(err.Error(), "compacted") {
			w.Fatal(err)
		}
		return "compact"
	case 9:
		if r.address != "" {
			r.stop()
			return "stop a replica"
		}
		return fmt.Sprintf("start a replica: %v", w.start(r))
	default:
		cut := w.random.IntN(2) == 0
		r.cable.setCut(cut)
		return fmt.Sprintf("a replica is cut off: %t", cut)
	}
}

// apply writes what is good, as "dynxds apply" does.
func (w *world) apply() string {
	w.Helper()
	before, name := maps.Clone(w.documents), w.name()
	for other, text := range w.documents {
		if strings.HasPrefix(text, "kind: Servce") || strings.Contains(text, "twice") {
			w.documents[other] = w.fresh(other)
		}
	}
	w.documents[name] = w.fresh(name)
	var edits []store.Edit
	for _, name := range slices.Sorted(maps.Keys(w.documents)) {
		text, old := w.documents[name], before[name]
		if text == old {
			continue
		}
		e := store.Edit{Name: name, After: &text}
		if old != "" {
			e.Before = &old
		}
		edits = append(edits, e)
	}
	snapshot, err := w.store.Load(testutils.Context(w))
	xdstest.NoError(w, err)
	_, err = w.store.Commit(testutils.Context(w), snapshot, store.Record{Command: "apply"}, edits, 10)
	xdstest.NoError(w, err)
	names, good := w.services()
	if !good {
		w.Fatalf("the test applies what is not good: %v", w.documents)
	}
	w.good[names] = true
	return "apply " + name
}

// settle ends all faults of the network, starts all replicas, and waits until all of them serve the same, which must
// be the newest documents if these are good, and ones that were good otherwise.
func (w *world) settle() {
	w.Helper()
	newest, good := w.services()
	ctx := testutils.Context(w)
	var served map[string]int
	for {
		served = make(map[string]int)
		var down error
		for _, r := range w.replicas {
			r.cable.setCut(false)
			if r.address == "" {
				if err := w.start(r); err != nil {
					down = err
					continue
				}
			}
			names, err := w.serves(r)
			if err != nil {
				names = "error: " + err.Error()
			}
			served[names]++
		}
		for names, n := range served {
			switch {
			case n == len(w.replicas) && (good && names == newest || !good && w.good[names]):
				return
			case n > 0 && down == nil && len(served) == 1 && !good && !w.good[names] && !strings.HasPrefix(names, "error"):
				w.Fatalf("all serve %q, which was never good. Steps: %s", names, strings.Join(w.done, "; "))
			}
		}
		if len(served) == 0 && !good {
			return // nobody knows what was good; nobody serves anything
		}
		select {
		case <-ctx.Done():
			for i, r := range w.replicas {
				w.Logf("replica %d:\n%s", i, r.log)
			}
			w.Fatalf("replicas serve %v (%v), the newest are %q, good: %t. Steps: %s", served, down, newest, good, strings.Join(w.done, "; "))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Whatever is written, in whatever order replicas stop, start and are cut off, and whatever etcd compacts: in the end all
// replicas serve the same, the newest documents or ones that were good, and so does one that starts then.
func TestReplicasServeTheSame(t *testing.T) {
	t.Parallel()
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &world{T: t, cluster: newCluster(t, 1), random: rand.New(rand.NewPCG(seed, 0)), documents: map[string]string{}, good: map[string]bool{}}
			w.store = w.open(prefix, 0)
			w.write(map[string]string{"a.yaml": w.fresh("a.yaml"), "b.yaml": w.fresh("b.yaml")})
			dir := t.TempDir()
			for i := range 3 {
				r := &inProcess{cable: newCable(t, w.members[0].cable.address)}
				if i == 0 {
					r.lastGood = filepath.Join(dir, "last-good.json")
				}
				w.replicas = append(w.replicas, r)
			}
			t.Cleanup(func() {
				for _, r := range w.replicas {
					r.cable.setCut(false)
					if r.address != "" {
						r.stop()
					}
				}
			})
			w.settle()
			for range 10 {
				for range 1 + w.random.IntN(6) {
					w.done = append(w.done, w.step())
				}
				w.settle()
				w.done = append(w.done, "settled")
				// Another replica, without anything of its own.
				late := w.replicas[2]
				if late.address != "" {
					late.stop()
					w.settle()
				}
			}
		})
	}
}
