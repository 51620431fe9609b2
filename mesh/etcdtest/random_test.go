package etcdtest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/internal/store"
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
	cable   *cable
	log     *xdstest.Log
	address string
	// stop is nil while it does not run.
	stop func()
	// ready says that it has served since it was started.
	ready bool
}

// start starts a replica.
func (w *world) start(r *inProcess) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	r.log, r.ready, r.address = new(xdstest.Log), false, reserve(w)
	opts := site.Options{
		Store:           &store.Options{URL: "etcd://" + r.cable.address + prefix, Timeout: time.Second},
		WithdrawalDelay: 100 * time.Millisecond,
		Serve:           serve.Options{Listen: r.address, Grace: time.Nanosecond, Log: slog.New(slog.NewTextHandler(r.log, nil))},
	}
	go func() { ended <- site.Run(ctx, opts) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("a replica ended with %v", err)
		}
		r.stop = nil
	}
}

// notReady is what a replica serves that is not ready.
const notReady = "(not ready)"

// serves returns the services that a replica serves, or notReady.
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
	if err != nil && strings.Contains(err.Error(), "not ready") {
		return notReady, nil
	}
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
	content, err := new(folder.Parser).Parse(w.documents)
	if err != nil || content.Documents() == 0 {
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
		if r.stop != nil {
			r.stop()
			return "stop a replica"
		}
		w.start(r)
		return "start a replica"
	default:
		cut := w.random.IntN(2) == 0
		r.cable.setCut(cut)
		return fmt.Sprintf("a replica is cut off: %t", cut)
	}
}

// apply writes what is good, as "dynxds apply" does.
func (w *world) apply() string {
	w.Helper()
	name := w.name()
	for other, text := range w.documents {
		if strings.HasPrefix(text, "kind: Servce") || strings.Contains(text, "twice") {
			w.documents[other] = w.fresh(other)
		}
	}
	w.documents[name] = w.fresh(name)
	_, err := w.store.Write(testutils.Context(w), w.documents)
	xdstest.NoError(w, err)
	names, good := w.services()
	if !good {
		w.Fatalf("the test applies what is not good: %v", w.documents)
	}
	w.good[names] = true
	return "apply " + name
}

// settle ends all faults of the network, starts all replicas, and waits until all of them serve the newest documents if
// these are good. Otherwise those that have served go on with documents that were good, as wereGood says, and those that were
// started are not ready.
func (w *world) settle() {
	w.Helper()
	for _, r := range w.replicas {
		r.cable.setCut(false)
		if r.stop == nil {
			w.start(r)
		}
	}
	newest, good := w.services()
	for _, r := range w.replicas {
		cmdtest.Await(w, func() string {
			names, err := w.serves(r)
			if names == newest && good || err == nil && !good && (w.wereGood(names) || names == notReady && !r.ready) {
				r.ready = r.ready || names != notReady
				return ""
			}
			return fmt.Sprintf("a replica serves %q (%v), the newest are %q, good: %t. Steps: %s\nIts log:\n%s", names, err, newest, good, strings.Join(w.done, "; "), r.log)
		})
	}
}

// wereGood reports whether services are those of documents that were good: once together, or of several such states, since services
// whose large withdrawal waits stay beside those that came meanwhile.
func (w *world) wereGood(names string) bool {
	served, covered := strings.Fields(names), map[string]bool{}
	for state := range w.good {
		together := strings.Fields(state)
		if slices.ContainsFunc(together, func(name string) bool { return !slices.Contains(served, name) }) {
			continue
		}
		for _, name := range together {
			covered[name] = true
		}
	}
	return len(served) > 0 && len(covered) == len(served)
}

// Whatever is written, in whatever order replicas stop, start and are cut off, and whatever etcd compacts: in the end all
// replicas serve the newest documents if these are good, and otherwise none serves what never was.
func TestReplicasServeTheSame(t *testing.T) {
	t.Parallel()
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &world{T: t, cluster: newCluster(t, 1), random: rand.New(rand.NewPCG(seed, 0)), documents: map[string]string{}, good: map[string]bool{}}
			w.store = w.open(prefix, 0)
			w.write(map[string]string{"a.yaml": w.fresh("a.yaml"), "b.yaml": w.fresh("b.yaml")})
			for range 3 {
				w.replicas = append(w.replicas, &inProcess{cable: newCable(t, w.members[0].cable.address)})
			}
			t.Cleanup(func() {
				for _, r := range w.replicas {
					if r.stop != nil {
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
			}
		})
	}
}
