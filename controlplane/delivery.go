package controlplane

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// maxNACKMessage bounds what is kept of a client's error, in bytes.
const maxNACKMessage = 4 << 10

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
	names := [...]string{"nothing sent", "awaited", "ACK", "NACK"}
	if r < 0 || int(r) >= len(names) {
		return "unknown"
	}
	return names[r]
}

// NACK is a client's rejection of a response.
type NACK struct {
	// Version and Nonce are the rejected response's.
	Version, Nonce string
	// Err is the client's error_detail without details; in a ClientStatus its message is
	// cut at 4 KiB.
	Err *status.Status
}

// maxUnanswered bounds the responses that a client may still answer; answers to older ones are
// ignored.
const maxUnanswered = 256

// delivery is the last response of a type on a stream, and the client's answers.
type delivery struct {
	version, nonce string
	reply          Reply
	ackedVersion   string
	nack           *NACK
	// unanswered are the responses that a delta client has not answered, oldest first. A
	// SotW client answers only the last one.
	unanswered []sentResponse
}

type sentResponse struct{ version, nonce string }

func (d *delivery) sent(version, nonce string) {
	d.version, d.nonce, d.reply = version, nonce, ReplyAwaited
}

// stale reports whether a request's nonce is that of an older response. An empty nonce is not
// stale: the client may have sent the request before any response reached it.
func (d *delivery) stale(nonce string) bool {
	return nonce != "" && d.reply != ReplyNone && nonce != d.nonce
}

// answered records the ACK or NACK of a request whose nonce is not stale. It returns the
// rejection, or nil.
//
// The version distinguishes an ACK from a change of the subscription after a NACK, which repeats
// the nonce without the error and has the version accepted before. That may be the rejected
// version too, as several responses can have one version; so a rejected response stays rejected.
func (d *delivery) answered(version, nonce string, detail *statuspb.Status) *NACK {
	if d.reply == ReplyNone || nonce != d.nonce {
		return nil
	}
	switch {
	case detail != nil:
		d.reply = ReplyNACK
		d.nack = &NACK{Version: d.version, Nonce: nonce, Err: shortStatus(detail)}
		return d.nack
	case d.reply == ReplyAwaited && version == d.version:
		d.reply = ReplyACK
		d.ackedVersion = version
	}
	return nil
}

// sentOne is sent for delta, where each response has its own answer.
func (d *delivery) sentOne(version, nonce string) {
	d.sent(version, nonce)
	if len(d.unanswered) == maxUnanswered {
		d.unanswered = slices.Delete(d.unanswered, 0, 1)
	}
	d.unanswered = append(d.unanswered, sentResponse{version, nonce})
}

// answeredOne records the ACK or NACK of a delta request. It returns the rejection, or nil. A
// nonce that is unknown or was answered before is ignored.
func (d *delivery) answeredOne(nonce string, detail *statuspb.Status) *NACK {
	i := slices.IndexFunc(d.unanswered, func(r sentResponse) bool { return r.nonce == nonce })
	if i < 0 {
		return nil
	}
	answered, reply := d.unanswered[i], ReplyACK
	d.unanswered = slices.Delete(d.unanswered, i, i+1)
	var rejection *NACK
	if detail != nil {
		rejection = &NACK{Version: answered.version, Nonce: nonce, Err: shortStatus(detail)}
		d.nack, reply = rejection, ReplyNACK
	} else {
		d.ackedVersion = answered.version
	}
	if nonce == d.nonce {
		d.reply = reply
	}
	return rejection
}

func shortStatus(s *statuspb.Status) *status.Status {
	message := s.GetMessage()
	if len(message) > maxNACKMessage {
		message = strings.ToValidUTF8(message[:maxNACKMessage], "")
	}
	return status.New(codes.Code(s.GetCode()), message)
}
