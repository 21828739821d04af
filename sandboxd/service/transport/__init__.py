"""What surrounds every gRPC call: server, guard, authorisation, status mapping."""
