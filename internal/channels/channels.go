// Package channels keeps the status of every xDS channel of the process: whether its
// configuration comes from the control plane or from DNS, and why.
//
// The resolver writes the records, diagnostics read them. A record outlives the
// channel's idle periods, in which there is no resolver, and goes with the channel.
package channels

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/dnsconfig"
)

var logger = grpclog.Component("dynxds")

// Mode says where a channel's configuration comes from; see dynxds.Mode.
type Mode string

// The values of Mode, as logs name them.
const (
	Undecided Mode = "undecided"
	XDS       Mode = "xDS"
	DNS       Mode = "DNS"
)

// Status is the state of one channel at one moment; see dynxds.ChannelStatus.
type Status struct {
	// Target is the channel's target as it was dialled.
	Target string
	// Mode is where its configuration comes from.
	Mode Mode
	// Reason is why the channel is in this mode.
	Reason string
	// Since is when it entered the mode.
	Since time.Time
	// DNS is the last look-up of the service config in mode DNS, nil if there was
	// none. It must not be changed.
	DNS *dnsconfig.Result
}

// All returns the status of every channel that has been used and is not closed, in
// the order of first use.
func All() []Status {
	channels.mu.Lock()
	records := make([]*Record, 0, len(channels.records))
	for key, r := range channels.records {
		if cc := key.Value(); cc != nil && cc.GetState() != connectivity.Shutdown {
			records = append(records, r)
		}
	}
	channels.mu.Unlock()
	slices.SortFunc(records, func(a, b *Record) int { return cmp.Compare(a.number, b.number) })
	all := make([]Status, len(records))
	for i, r := range records {
		all[i] = r.Status()
	}
	return all
}

// channels has the records of the channels that are in memory.
var channels = struct {
	mu      sync.Mutex
	count   uint64
	records map[weak.Pointer[grpc.ClientConn]]*Record
}{records: map[weak.Pointer[grpc.ClientConn]]*Record{}}

// Record is what is remembered of one channel. It is safe for concurrent use.
type Record struct {
	number uint64

	mu     sync.Mutex
	status Status
}

// RecordOf returns the record of a channel, a new one if there is none.
func RecordOf(cc *grpc.ClientConn) *Record {
	key := weak.Make(cc)
	channels.mu.Lock()
	defer channels.mu.Unlock()
	r := channels.records[key]
	if r == nil {
		channels.count++
		r = &Record{number: channels.count, status: Status{
			Target: cc.Target(), Mode: Undecided, Reason: "the control plane has not answered yet", Since: time.Now()}}
		channels.records[key] = r
		runtime.AddCleanup(cc, forgetChannel, key)
	}
	return r
}

func forgetChannel(key weak.Pointer[grpc.ClientConn]) {
	channels.mu.Lock()
	defer channels.mu.Unlock()
	delete(channels.records, key)
}

// Status returns the status of the channel.
func (r *Record) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	if s.Mode != DNS {
		s.DNS = nil
	}
	return s
}

// Mode returns the mode of the channel.
func (r *Record) Mode() Mode { return r.Status().Mode }

// SetMode puts the channel into a mode. Entering and leaving DNS is logged.
func (r *Record) SetMode(m Mode, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.status.Mode
	if old == m {
		return
	}
	r.status.Mode, r.status.Reason, r.status.Since = m, reason, time.Now()
	switch {
	case m == DNS:
		logger.Warningf("%s: resolved by DNS: %s", r.status.Target, reason)
	case old == DNS && m == XDS:
		logger.Infof("%s: configured by xDS, no longer by DNS: %s", r.status.Target, reason)
	case old == DNS:
		logger.Warningf("%s: no longer resolved by DNS: %s", r.status.Target, reason)
	}
}

// SetReason replaces the reason of a channel that is undecided: it is the last thing
// that the control plane said.
func (r *Record) SetReason(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Mode == Undecided {
		r.status.Reason = reason
	}
}

// SetDNS records the look-up of a service config.
func (r *Record) SetDNS(result *dnsconfig.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.DNS = result
}
