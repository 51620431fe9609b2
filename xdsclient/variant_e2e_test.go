package xdsclient

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/testutils"
)

// TestModelOfVariantsEndToEnd has the model's client talk with the real control plane,
// over loopback: variants come, change and go while watches start, move and stop and
// streams break. Whenever there is peace, each watch has what the oracle says.
func TestModelOfVariantsEndToEnd(t *testing.T) {
	for _, features := range [][]string{nil, {"delta"}} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(features, seed), func(t *testing.T) {
				t.Parallel()
				server, news := testutils.StartFakeServer(t), make(chan struct{}, 1)
				c, err := New(parseBootstrap(t, server.Addr(), testutils.Authority("auth", "", nil),
					testutils.ServerFeatures(append([]string{"dynamic_parameter_constraints", "fail_on_data_errors"}, features...)...)),
					WithBackoff(quick))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				m := &model{
					t: t, r: rand.New(rand.NewPCG(seed, 11)), client: c, types: newTestTypes(), collections: features != nil,
					world: make(map[string]map[string]worldVariant),
					heard: func() {
						select {
						case news <- struct{}{}:
						default:
						}
					},
				}
				for range 30 {
					for range 1 + m.r.IntN(6) {
						m.step()
						server.Update(t, m.publish)
					}
					if m.r.IntN(4) == 0 {
						m.note("the streams break")
						server.BreakStreams(errors.New("off for lunch"))
					}
					m.await(news)
				}
			})
		}
	}
}

// publish makes the control plane have what the model has.
func (m *model) publish(tx *controlplane.Tx) {
	for _, name := range []string{"old-style", collectionDir + "a", collectionDir + "b"} {
		tx.Delete(m.types.clusters.TypeURL, name)
		for _, v := range m.world[name] {
			tx.SetVariant(v.parameters.Map(), cluster(name, v.text))
		}
	}
}

// await waits until each watch has what it is to have.
func (m *model) await(news <-chan struct{}) {
	m.t.Helper()
	deadline := time.After(30 * time.Second)
	for fault := m.difference(); fault != ""; fault = m.difference() {
		select {
		case <-news:
		case <-deadline:
			m.t.Fatalf("%s, after\n%s", fault, strings.Join(m.steps, "\n"))
		}
	}
}
