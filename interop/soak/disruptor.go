package soak

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// disruptor disrupts a mesh for a while: it stops backends and makes control planes
// fail or lie.
type disruptor struct {
	publisher
	// faulty has the control planes that are disrupted.
	faulty map[*meshtest.Server]bool
	// undo has what ends the disruptions.
	undo []pending
	// lasts is how long a disruption lasts.
	lasts time.Duration
}

// pending ends a disruption at a time.
type pending struct {
	due time.Time
	do  func()
}

// later ends a disruption after a while.
func (d *disruptor) later(undo func()) {
	d.undo = append(d.undo, pending{time.Now().Add(d.lasts), undo})
}

// undoDue ends the disruptions that are due.
func (d *disruptor) undoDue() {
	now := time.Now()
	var due []pending
	d.undo = slices.DeleteFunc(d.undo, func(p pending) bool {
		if p.due.After(now) {
			return false
		}
		due = append(due, p)
		return true
	})
	for _, p := range due {
		p.do()
	}
}

func (d *disruptor) undoAll() {
	all := d.undo
	d.undo = nil
	for _, p := range all {
		p.do()
	}
}

// stopBackend stops a backend for a while, unless a client may have a cluster that
// would have none left.
func (d *disruptor) stopBackend(how func(*backend)) bool {
	i := d.IntN(len(d.backends))
	b := d.backends[i]
	if !b.sure {
		return false
	}
	for _, c := range d.history.live() {
		for _, s := range c.clusters {
			for _, p := range s.placements {
				left := slices.DeleteFunc(p.backends(), func(other int) bool { return other == i || !d.backends[other].sure })
				if len(left) == 0 {
					return false
				}
			}
		}
	}
	b.sure = false
	how(b)
	d.later(func() { d.must(b.Restart()) })
	return true
}

// fault disrupts the control plane for a while.
func (d *disruptor) fault(do, undo func(*meshtest.Server)) bool {
	return d.faultOf(d.control, do, undo)
}

// faultOf disrupts one of the control planes for a while. Each has one fault at a time.
func (d *disruptor) faultOf(f *meshtest.Server, do, undo func(*meshtest.Server)) bool {
	if d.faulty[f] {
		return false
	}
	d.faulty[f] = true
	do(f)
	d.later(func() {
		undo(f)
		delete(d.faulty, f)
	})
	return true
}

// lie is a fault in which the control plane sends wrong responses, in a round with lies.
func (d *disruptor) lie(do, undo func(*meshtest.Server)) bool {
	if !d.lying {
		return false
	}
	return d.fault(do, func(f *meshtest.Server) {
		undo(f)
		// The server does not resend correct resources by itself.
		f.BreakStreams(errors.New("on purpose"))
	})
}

// spoil changes a few resources in the store that all clients use, and restores them
// later. Of the DPDS resources it is the one whose constraints clients keep.
func (d *disruptor) spoil(f func(tx *controlplane.Tx, k key)) bool {
	all := d.newest.allKeys()
	all[key{dynparam.MapTypeURL, keepsDPDS.resource()}] = true
	keys := slices.SortedFunc(maps.Keys(all), compare)
	d.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+d.IntN(len(keys))]
	return d.lie(func(server *meshtest.Server) {
		d.update(func(tx *controlplane.Tx) {
			for _, k := range keys {
				f(tx, k)
			}
		})
	}, func(server *meshtest.Server) { d.store(d.newest) })
}

func (d *disruptor) putErrors() bool {
	codes := []codes.Code{codes.NotFound, codes.PermissionDenied, codes.Internal, codes.Unavailable, codes.Code(99)}
	code := codes[d.IntN(len(codes))]
	return d.spoil(func(tx *controlplane.Tx, k key) {
		tx.SetError(k.typeURL, k.name, status.New(code, fmt.Sprintf("%s, on purpose", k.name)))
	})
}

func compare(a, b key) int {
	return strings.Compare(a.typeURL+" "+a.name, b.typeURL+" "+b.name)
}
