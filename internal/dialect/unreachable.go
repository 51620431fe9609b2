package dialect

import (
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	unreachableReason = "MANAGEMENT_SERVER_UNREACHABLE"
	silentReason      = "MANAGEMENT_SERVER_SILENT"
	relayDomain       = "github.com/dynxds/dynxds"
)

// Unreachable returns the detail of UNAVAILABLE by which a relay of dynxds says, in place of a resource, that
// its management servers are unreachable. Other clients do not know it.
func Unreachable() *errdetails.ErrorInfo { return relayInfo(unreachableReason) }

// Silent returns the detail by which a relay says that its management server did not answer in time.
func Silent() *errdetails.ErrorInfo { return relayInfo(silentReason) }

func relayInfo(reason string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: reason, Domain: relayDomain}
}

// SaysUnreachable reports whether an error in place of a resource has the detail of Unreachable.
func SaysUnreachable(s *statuspb.Status) bool { return says(s, unreachableReason) }

// SaysSilent reports whether an error in place of a resource has the detail of Silent.
func SaysSilent(s *statuspb.Status) bool { return says(s, silentReason) }

func says(s *statuspb.Status, reason string) bool {
	return codes.Code(s.GetCode()) == codes.Unavailable && slices.ContainsFunc(s.GetDetails(), func(detail *anypb.Any) bool {
		info := new(errdetails.ErrorInfo)
		return detail.MessageIs(info) && detail.UnmarshalTo(info) == nil &&
			info.GetReason() == reason && info.GetDomain() == relayDomain
	})
}
