package xdsclient

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// The methods that the channel's stream calls; Receive is in update.go. The lock is not held.

var _ ads.Handler = (*managementServer)(nil)

// Dialect implements ads.Handler.
func (ch *managementServer) Dialect() wire.Dialect {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if !ch.link.Closed() {
		ch.speak(ch.nextDialect())
	}
	return ch.dialect
}

// Opened implements ads.Handler. Everything is subscribed to again, with the last accepted
// versions where the cache still has them. Types without watches are forgotten.
func (ch *managementServer) Opened() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.client.stats.Streams++
	if ch.link.Closed() {
		return
	}
	ch.link.Opened()
	ch.forgetReplaced()
	kept := ch.types[:0]
	for _, ts := range ch.types {
		if ts.begin(); ts.subs.size > 0 {
			kept = append(kept, ts)
		}
	}
	clear(ch.types[len(kept):])
	ch.types = kept
	if len(kept) > 0 {
		if !ch.link.Healthy() {
			kept[0].Probe()
		}
	}
	ch.expiry.start()
	ch.stream.Notify()
}

// forgetReplaced forgets this server's answers for resources whose authority follows another
// server. The cache has the other server's versions by now, so this server has to send its own again, and
// must not be told the other's versions. Nor is it told the versions of the variants in a collection (xRFC
// TP2): versions are by name, and the server could not report which variant of a name was removed.
func (ch *managementServer) forgetReplaced() {
	for _, ts := range ch.types {
		for s := range ts.subs.all() {
			if !ch.standsBy(s.resource) && !(ts.Dialect.Locators && s.IsCollection()) {
				continue
			}
			ts.ForgetAnswers(s)
		}
	}
}

// NextRequest implements ads.Handler.
func (ch *managementServer) NextRequest() (r *wire.Request, at time.Time) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if ch.client.batches > 0 {
		return nil, time.Time{}
	}
	for _, ts := range ch.types {
		_, due := ts.Replies.Due() // read first: a reply that becomes due now is sent, or waited for
		if r, fresh := ts.Next(ch.delivery != nil); r != nil {
			ch.sending = fresh
			for _, s := range fresh {
				s.deadline = 0
			}
			return r, time.Time{}
		}
		if !due.IsZero() && (at.IsZero() || due.Before(at)) {
			at = due
		}
	}
	return nil, at
}

// Sent implements ads.Handler: the resource timers of the new subscriptions start (gRFC A57).
func (ch *managementServer) Sent() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.client.stats.Requests++
	fresh := ch.sending
	ch.sending = nil
	if !ch.link.Streaming() {
		return
	}
	for _, s := range fresh {
		if s.State.Pending() {
			ch.expiry.expect(s)
		}
	}
}

// answered notes that the server sent a response on the stream. That ends every connectivity error, but
// watchers are notified by restored: the response may have another version of a resource in use.
func (ch *managementServer) answered(resp *wire.Response) {
	ch.client.diskWriter.answered(ch.server, resp)
	if ch.link.Closed() || !ch.link.Answered() {
		return
	}
	ch.client.infof("xDS management server %s answers again", ch.server)
	recordServer(changes.ServerRestored, ch.server, nil)
	for a := range ch.authorities {
		a.serverUp(ch)
	}
}

// restored follows answered when the answer has been applied.
func (ch *managementServer) restored() {
	if ch.link.Closed() {
		return
	}
	for a := range ch.authorities {
		a.clearLoss(ch)
	}
}

// Delivered implements ads.Handler: requests that were held back during a delivery may go out.
func (ch *managementServer) Delivered() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.delivery = nil
	if !ch.link.Closed() {
		ch.stream.Notify()
	}
}

// Reading implements ads.Handler: resource timers run again.
func (ch *managementServer) Reading() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if ch.link.Closed() {
		return
	}
	ch.expiry.start()
	ch.expiry.arm()
}

// Ended implements ads.Handler.
func (ch *managementServer) Ended(err error) (atOnce bool) {
	if status.Code(err) == codes.Unimplemented && ch.downgrade() {
		return true
	}
	if ch.noteEnd(err) == ads.EndUnreachable {
		ch.client.attached.serverFailed(ch)
	}
	return false
}

// noteEnd notes that a stream ended, and why.
func (ch *managementServer) noteEnd(err error) ads.End {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if ch.link.Closed() {
		return ads.EndAfterAnswer
	}
	ch.reset()
	advice := ""
	if ch.server.CredentialsType == "insecure" {
		advice = `its channel_creds in the xDS bootstrap are of type "insecure"; use "tls"`
	}
	end := ch.link.Ended(err, advice)
	if end == ads.EndUnreachable {
		recordServer(changes.ServerLost, ch.server, ch.link.Failure())
	}
	switch end {
	case ads.EndAfterAnswer:
		ch.client.infof("xDS stream to %s ended, will be opened again: %v", ch.server, transport.Reason(err))
		return end
	case ads.EndSoon:
		write := ch.client.infof
		if !ch.saidSoon {
			ch.saidSoon, write = true, ch.client.warningf
		}
		write("xDS management server %s ended a stream without an error soon after it was opened: %s", ch.server, streamTaken)
		return end
	case ads.EndUnreachable, ads.EndOtherReason:
		ch.client.warningf("xDS management server %s is unreachable: %v", ch.server, ch.link.Failure())
	}
	for a := range ch.authorities {
		a.serverDown(ch, end != ads.EndSameReason)
	}
	return end
}

// reset forgets the state of a stream that ended.
func (ch *managementServer) reset() {
	ch.delivery = nil
	ch.expiry.stop()
	ch.expiry.clear()
	for _, ts := range ch.types {
		ts.begin()
	}
}
