// Package httpstatus maps HTTP statuses to gRPC statuses, as gRPC does for responses
// without a grpc-status.
//
// It is for routes and filters that end RPCs with an HTTP status (direct responses,
// redirects, fault injection). It does not read responses.
package httpstatus

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// Code returns the status code of an RPC that is answered with an HTTP status
// and no grpc-status (gRPC's "HTTP to gRPC Status Code Mapping"). It is never
// OK.
func Code(status int) codes.Code {
	switch status {
	case http.StatusBadRequest:
		return codes.Internal
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.Unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return codes.Unavailable
	default:
		return codes.Unknown
	}
}
