package provenance_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/typeurl"
)

// wire makes messages on the wire, field by field, in ways that no encoder would: fields that occur twice,
// in any order, empty, unknown or malformed. Metadata has random numbers of its own.
type wire struct{ r, metadataOnly *rand.Rand }

func (w wire) one(of int) bool { return w.r.IntN(of) == 0 }

func pick[T any](w wire, from ...T) T { return from[w.r.IntN(len(from))] }

func message(number protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), bytes.Join(parts, nil))
}

// some returns up to max results of make, joined.
func (w wire) some(max int, makePart func() []byte) (b []byte) {
	for range w.r.IntN(max + 1) {
		b = append(b, makePart()...)
	}
	return b
}

// odd is, rarely, a field that nobody knows, or something malformed.
func (w wire) odd() []byte {
	if !w.one(40) {
		return nil
	}
	return pick(w, message(1999, []byte("x")), message(1999, []byte("y")), protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 1),
		protowire.AppendVarint(protowire.AppendTag(nil, 25, protowire.VarintType), 1), []byte{0xff}, []byte{0x0c}, []byte{0},
		protowire.AppendGroup(protowire.AppendTag(nil, 3, protowire.StartGroupType), 3, nil))
}

func (w wire) text() []byte { return pick(w, []byte("a:1"), []byte("b:2"), []byte(""), []byte("\xff")) }

// structOf is a Struct.
func (w wire) structOf() []byte {
	return w.some(2, func() []byte {
		value := pick(w, message(3, w.text()), message(3, w.text()), message(5, message(1, message(1, []byte("k")))),
			protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 1), nil)
		return slices.Concat(message(1, w.odd(), messageText(1, pick(w, "service", "matches", "\xff")), message(2, value, w.odd())), w.odd())
	})
}

func messageText(number protowire.Number, text string) []byte { return message(number, []byte(text)) }

// metadata is a Metadata.
func (w wire) metadata() []byte {
	return w.some(2, func() []byte {
		key := pick(w, provenance.Key, provenance.Key, "envoy.lb")
		entry := [][]byte{messageText(1, key), message(2, w.structOf()), w.odd()}
		if w.one(20) {
			entry = append(entry, messageText(1, pick(w, provenance.Key, "envoy.lb", "\xff")))
		}
		if w.one(20) {
			entry = append(entry, message(2, w.structOf()))
		}
		w.r.Shuffle(len(entry), func(i, j int) { entry[i], entry[j] = entry[j], entry[i] })
		number := protowire.Number(1)
		if w.one(10) {
			number = 2
			entry = [][]byte{messageText(1, key), message(2, messageText(1, "t"))}
		}
		return slices.Concat(message(number, entry...), w.odd())
	})
}

// shuffled joins parts in any order, and rarely one of them twice.
func (w wire) shuffled(parts ...[]byte) []byte {
	if w.one(10) {
		parts = append(parts, parts[w.r.IntN(len(parts))])
	}
	if w.one(4) {
		w.r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	}
	return bytes.Join(parts, nil)
}

func (w wire) named(number protowire.Number) []byte {
	return messageText(number, pick(w, "n", "n", "n", "o"))
}

func (w wire) withMetadata(number protowire.Number, others ...[]byte) []byte {
	of := wire{w.metadataOnly, nil}
	return w.shuffled(append(others, of.some(2, func() []byte { return message(number, of.metadata()) }), w.odd())...)
}

func (w wire) resource(typ string) []byte {
	switch typ {
	case typeurl.Listener:
		return w.withMetadata(6, w.named(1))
	case typeurl.Cluster:
		return w.withMetadata(25, w.named(1))
	case typeurl.Endpoints:
		return w.shuffled(w.named(1), w.some(2, func() []byte {
			return message(2, w.some(2, func() []byte { return message(2, w.withMetadata(3, nil)) }), w.odd())
		}))
	default:
		return w.shuffled(w.named(1), w.some(2, func() []byte {
			return message(2, w.named(1), w.some(2, func() []byte { return message(3, w.withMetadata(4, w.named(14))) }), w.odd())
		}))
	}
}

// withoutPlaces removes places, and metadata that has nothing else.
func withoutPlaces(m proto.Message) proto.Message {
	strip := func(m **corepb.Metadata) {
		delete((*m).GetFilterMetadata(), provenance.Key)
		if proto.Size(*m) == 0 {
			*m = nil
		}
	}
	switch m := m.(type) {
	case *listenerpb.Listener:
		strip(&m.Metadata)
	case *clusterpb.Cluster:
		strip(&m.Metadata)
	case *endpointpb.ClusterLoadAssignment:
		for _, l := range m.Endpoints {
			for _, e := range l.LbEndpoints {
				strip(&e.Metadata)
			}
		}
	case *routepb.RouteConfiguration:
		for _, vh := range m.VirtualHosts {
			for _, route := range vh.Routes {
				strip(&route.Metadata)
			}
		}
	}
	return m
}

// Whatever is on the wire: if two versions are the same, then the second one can be decoded, and nothing
// but places differs. Of two that an encoder could have made, those that differ only in places are found.
func TestSameIsNoMoreThanPlaces(t *testing.T) {
	t.Parallel()
	types := map[string]func() proto.Message{
		typeurl.Listener:           func() proto.Message { return new(listenerpb.Listener) },
		typeurl.Cluster:            func() proto.Message { return new(clusterpb.Cluster) },
		typeurl.Endpoints:          func() proto.Message { return new(endpointpb.ClusterLoadAssignment) },
		typeurl.RouteConfiguration: func() proto.Message { return new(routepb.RouteConfiguration) },
	}
	for typ, newMessage := range types {
		same := 0
		for seed := range uint64(rounds) {
			random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(stream, seed)) }
			before, now := wire{random(1), random(2)}.resource(typ), wire{random(1), random(3)}.resource(typ)
			if seed%8 == 0 {
				now = wire{random(4), random(2)}.resource(typ)
			}
			old, updated := newMessage(), newMessage()
			if proto.Unmarshal(before, old) != nil || bytes.Equal(before, now) || !provenance.Same(typ, before, now) {
				continue
			}
			same++
			if err := proto.Unmarshal(now, updated); err != nil {
				t.Fatalf("%s, seed %d: the same, but cannot be decoded: %v\n%x\n%x", typ, seed, err, before, now)
			}
			if what := fmt.Sprintf("%v\n%v", old, updated); !proto.Equal(withoutPlaces(old), withoutPlaces(updated)) {
				t.Fatalf("%s, seed %d: taken for the same:\n%s", typ, seed, what)
			}
		}
		if same < rounds/100 {
			t.Errorf("%s: of %d pairs, %d are the same: too few to learn much", typ, rounds, same)
		}
	}
}

const rounds = 20_000
