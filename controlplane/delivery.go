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

// Reply is how a client took the last response of a type.
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
	switch r {
	case ReplyNone:
		return "nothing sent"
	case ReplyAwaited:
		return "awaited"
	case ReplyACK:
		return "ACK"
	case ReplyNACK:
		return "NACK"
	default:
		return "unknown"
	}
}

// NACK is a client's rejection of a response.
type NACK struct {
	// Version and Nonce are the rejected response's.
	Version, Nonce string
	// Err is the client's error_detail without details, and in a ClientStatus cut at
	// 4 KiB.
	Err *status.Status
}

// maxUnanswered bounds how many responses a client may still answer: answers to older ones
// are ignored.
const maxUnanswered = 256

// delivery is what was last sent of a type on a stream, and the answers to it.
type delivery struct {
	version, nonce string
	reply          Reply
	ackedVersion   string
	nack           *NACK
	// unanswered are the responses that a delta client has not answered,
	// oldest first. A SotW client answers the last one only.
	unanswered []sentResponse
}

type sentResponse struct{ version, nonce string }

func (d *delivery) sent(version, nonce string) {
	d.version, d.nonce, d.reply = version, nonce, ReplyAwaited
}

// stale reports whether a request's nonce is that of an older response. An empty nonce
// answers no response; it is not stale, as the client may have sent the request before any
// response reached it, and processing it cannot make a later request be lost.
func (d *delivery) stale(nonce string) bool {
	return nonce != "" && d.reply != ReplyNone && nonce != d.nonce
}

// answered notes the ACK or NACK of a request whose nonce is not stale.
//
// An ACK is told from a change of the subscription after a NACK by the version:
// the latter repeats the nonce without the error, and carries the version that
// was accepted before. As that may be the rejected one too (one version can be
// sent in several responses), what was rejected once stays rejected.
//
// It returns the rejection if the request is one, nil otherwise.
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

// sentOne is sent for delta, where each response is answered on its own.
func (d *delivery) sentOne(version, nonce string) {
	d.sent(version, nonce)
	if len(d.unanswered) == maxUnanswered {
		d.unanswered = slices.Delete(d.unanswered, 0, 1)
	}
	d.unanswered = append(d.unanswered, sentResponse{version, nonce})
}

// answeredOne notes the ACK or NACK of a delta request. A nonce that is unknown, or was
// answered before, answers nothing. It returns the rejection if the request is one.
func (d *delivery) answeredOne(nonce string, detail *statuspb.Status) *NACK {
	i := slices.IndexFunc(d.unanswered, func(r sentResponse) bool { return r.nonce == nonce })
	if i < 0 {
		return nil
	}
	answered := d.unanswered[i]
	d.unanswered = slices.Delete(d.unanswered, i, i+1)
	reply := ReplyACK
	if detail != nil {
		reply = ReplyNACK
		d.nack = &NACK{Version: answered.version, Nonce: nonce, Err: shortStatus(detail)}
	} else {
		d.ackedVersion = answered.version
	}
	if nonce == d.nonce {
		d.reply = reply
	}
	if reply != ReplyNACK {
		return nil
	}
	return d.nack
}

func shortStatus(s *statuspb.Status) *status.Status {
	message := s.GetMessage()
	if len(message) > maxNACKMessage {
		message = strings.ToValidUTF8(message[:maxNACKMessage], "")
	}
	return status.New(codes.Code(s.GetCode()), message)
}
