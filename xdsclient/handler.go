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

// What the stream of a server (stream.go) does when something happens; receive is in update.go. The lock is not held.

// opened notes that a stream is open, before anything is sent or received. Everything is subscribed to again, with the last
// accepted versions where the cache still has them. Types without watches are forgotten.
func (ch *managementServer) opened() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
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
			kept[0].probe = true
		}
	}
	ch.expiry.start()
	ch.notify()
}

// forgetReplaced forgets this server's answers for resources whose authority follows another
// server. The cache has the other server's versions by now, so this server has to send its own again, and
// must not be told the other's versions. Nor is it told the versions of the variants in a collection (xRFC
// TP2): versions are by name, and the server could not report which variant of a name was removed.
func (ch *managementServer) forgetReplaced() {
	for _, ts := range ch.types {
		for s := range ts.subs.all() {
			if !ch.standsBy(s.resource) && !(ts.channel.dialect.Locators && s.isCollection()) {
				continue
			}
			ts.forgetAnswers(s)
		}
	}
}

// nextRequest returns the request that is due, with the subscriptions that it makes known to the server. If there is none it
// returns nil, and when the next one will be due if nothing changes until then: zero if none will.
func (ch *managementServer) nextRequest() (r *wire.Request, fresh []*subscription, at time.Time) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if ch.client.batches > 0 {
		return nil, nil, time.Time{}
	}
	for _, ts := range ch.types {
		r, fresh, due := ts.next(ch.delivery != nil)
		if r != nil {
			return r, fresh, time.Time{}
		}
		if !due.IsZero() && (at.IsZero() || due.Before(at)) {
			at = due
		}
	}
	return nil, nil, at
}

// sent notes that a request was sent: the resource timers of its new subscriptions start (gRFC A57).
func (ch *managementServer) sent(fresh []*subscription) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
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
	for a := range ch.authorities {
		a.clearLoss(ch)
	}
}

// delivered notes that the watchers are done with a response: requests that were held back during its delivery may go out.
func (ch *managementServer) delivered() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.delivery = nil
	ch.notify()
}

// reading notes that the next response is read, maybe after a rest: resource timers run again.
func (ch *managementServer) reading() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.expiry.start()
	ch.expiry.arm()
}

// ended notes that a stream has ended, or could not be opened. atOnce has the next one opened without backoff.
func (ch *managementServer) ended(err error) (atOnce bool) {
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
