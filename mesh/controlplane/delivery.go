package controlplane

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
)

// Reply is a client's answer to the last response of a type.
type Reply int

const (
	// ReplyNone: no response of the type was sent on the stream.
	ReplyNone Reply = iota
	// ReplyAwaited: the client has not answered the last response.
	ReplyAwaited
	// ReplyACK: the client accepted the last response.
	ReplyACK
	// ReplyNACK: the client rejected the last response.
	ReplyNACK
)

// String returns the state in lower case.
func (r Reply) String() string {
	return cmp.Or(map[Reply]string{ReplyNone: "nothing sent", ReplyAwaited: "awaited", ReplyACK: "ACK", ReplyNACK: "NACK"}[r], "unknown")
}

// NACK is a client's rejection of a response.
type NACK struct {
	// Version and Nonce are the rejected response's.
	Version, Nonce string
	// Err is the client's error_detail without details; in a ClientStatus its message is
	// cut at about 4 KiB.
	Err *status.Status
}

// maxUnanswered bounds the responses that a client may still answer; answers to older ones are
// ignored.
const maxUnanswered = 256

// delivery is the last response of a type on a stream, and the client's answers.
type delivery struct {
	sentResponse
	// silentSince is since when the client has answered no response, while the reply is ReplyAwaited.
	sentAt, silentSince time.Time
	reply               Reply
	ackedVersion        string
	nack                *NACK
	// refusing is set until an ACK follows nack.
	refusing bool
	// unanswered are the responses that the client may still answer, oldest first: over SotW only the last one.
	unanswered []sentResponse
	// sending is the time of the first of the updates that are being sent, zero for none.
	sending time.Time
}

type sentResponse struct {
	version, nonce string
	// changed is the time of the first update that it was sent for, zero for none.
	changed time.Time
}

// sent notes a response. alone is set over SotW, where the client answers only the last one.
func (d *delivery) sent(version, nonce string, alone bool) {
	d.sentResponse = sentResponse{version, nonce, d.sending}
	d.sentAt = time.Now()
	if d.reply != ReplyAwaited {
		d.silentSince, d.reply = d.sentAt, ReplyAwaited
	}
	if alone {
		d.unanswered = d.unanswered[:0]
	}
	d.unanswered = append(d.unanswered[max(0, len(d.unanswered)+1-maxUnanswered):], d.sentResponse)
}

// answered records and returns the ACK or NACK of a request, with the sentResponse.changed of the response. ReplyNone is neither: a nonce
// that is unknown or was answered before is ignored.
//
// A request without an error is an ACK if accepts is set. Over SotW the version says so, which distinguishes an ACK from a change
// of the subscription that the client sent with the version that it had before. That may be the version of the response too, as
// several responses can have one version; so a rejected response stays rejected.
func (d *delivery) answered(nonce string, detail *statuspb.Status, accepts bool) (got Reply, changed time.Time) {
	i := slices.IndexFunc(d.unanswered, func(r sentResponse) bool { return r.nonce == nonce })
	if i < 0 || detail == nil && !accepts {
		return ReplyNone, time.Time{}
	}
	answered := d.unanswered[i]
	d.silentSince = time.Now()
	d.unanswered = slices.Delete(d.unanswered, i, i+1)
	if d.refusing = detail != nil; d.refusing {
		beginning := bounds.Error(errors.New(detail.GetMessage()), bounds.KeptNACK).Error() // no more stays in memory
		got, d.nack = ReplyNACK, &NACK{answered.version, nonce, status.New(codes.Code(detail.GetCode()), beginning)}
	} else {
		got, d.ackedVersion = ReplyACK, answered.version
	}
	if nonce == d.nonce {
		d.reply = got
	}
	return got, answered.changed
}
