//! The settings of each fleet's listeners: one row per fleet, which its ports read.

use sesame_api::ObjectKey;
use sesame_engine::{Builder, Table};
use sesame_model::{FleetId, ListenerSettings};

use super::references::GatewayParameters;
use crate::inputs::Inputs;
use crate::settings::Mode;

/// Declares the settings of all listeners. A Gateway's fleet has its own. The default fleet has those of the instance, as do
/// unmanaged Envoys, which also serve objects without a Gateway.
///
/// While a Gateway's configuration is invalid, the last valid settings stay in effect; without any, such as after a restart,
/// those of the instance.
pub(crate) fn listener_settings(
    b: &mut Builder,
    inputs: &Inputs,
    gateways: Table<ObjectKey, GatewayParameters>,
) -> Table<FleetId, ListenerSettings> {
    let inputs = *inputs;
    let of_gateways = b.derive_many(
        "listener settings of gateways",
        gateways,
        move |reader, gateway: &ObjectKey| {
            let Some(settings) = reader.get(inputs.settings, &()) else {
                return Vec::new();
            };
            let Some(parameters) = reader.get(gateways, gateway) else {
                return Vec::new();
            };
            if matches!(settings.mode, Mode::Unmanaged { .. }) {
                return Vec::new();
            }
            let fleet = settings.fleet_of(&gateway.namespaced_name());
            let row = match &parameters.chosen {
                Some(chosen) => chosen.listeners.clone(),
                None => reader
                    .get(inputs.valid_listener_settings, &fleet)
                    .map_or_else(
                        || settings.fleet.listeners.clone(),
                        |valid| ListenerSettings::clone(&valid),
                    ),
            };
            vec![(fleet, row)]
        },
    );
    let of_instance = b.derive_many(
        "listener settings of the instance",
        inputs.settings,
        move |reader, ()| {
            let settings = reader.get(inputs.settings, &());
            let row = settings.map(|settings| {
                let listeners = settings.fleet.listeners.clone();
                (settings.default_fleet(), listeners)
            });
            Vec::from_iter(row)
        },
    );
    b.union("listener settings", [of_gateways, of_instance])
}
